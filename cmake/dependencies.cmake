# System packages. What is missing is collected and named in one sentence; `make deps` installs all of it.
set(THREADS_PREFER_PTHREAD_FLAG ON)
if(CMAKE_CXX_COMPILER) # else nothing can be looked for, and all counts as missing
  find_package(Threads REQUIRED)
  find_package(absl QUIET)
  find_package(simdjson QUIET)
  find_package(spdlog QUIET)
  find_package(prometheus-cpp QUIET)
  find_package(Boost 1.81 QUIET)
  find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto SSL)
  find_path(XXHASH_INCLUDE_DIR xxhash.h)
  if(XXHASH_INCLUDE_DIR)
    add_library(router_xxhash INTERFACE)
    target_include_directories(router_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
  endif()
  # Debian's libzmq3-dev has no CMake package, and pkg-config may be missing.
  find_path(ZMQ_INCLUDE_DIR zmq.h)
  find_library(ZMQ_LIBRARY zmq)
  if(ZMQ_INCLUDE_DIR AND ZMQ_LIBRARY)
    add_library(router_zmq INTERFACE)
    target_include_directories(router_zmq SYSTEM INTERFACE ${ZMQ_INCLUDE_DIR})
    target_link_libraries(router_zmq INTERFACE ${ZMQ_LIBRARY})
  endif()
  if(ROUTER_BENCHMARKS)
    find_package(benchmark QUIET)
  endif()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
endif()

set(missing "")
set(missing_packages "")
macro(router_want what target debian_package)
  if(NOT TARGET ${target})
    list(APPEND missing "${what}")
    list(APPEND missing_packages ${debian_package})
  endif()
endmacro()

if(NOT CMAKE_CXX_COMPILER)
  list(APPEND missing "a C++20 compiler (without which no library could be looked for)")
  list(APPEND missing_packages g++)
endif()
router_want(Abseil absl::status libabsl-dev)
router_want(simdjson simdjson::simdjson libsimdjson-dev)
router_want(spdlog spdlog::spdlog libspdlog-dev)
router_want(prometheus-cpp prometheus-cpp::core prometheus-cpp-dev)
router_want("the Boost headers, 1.81 or newer" Boost::headers libboost1.81-dev)
router_want("OpenSSL, 3.0 or newer" OpenSSL::Crypto libssl-dev)
router_want(xxHash router_xxhash libxxhash-dev)
router_want("ZeroMQ (libzmq), 4.3 or newer" router_zmq libzmq3-dev)
if(ROUTER_BENCHMARKS)
  router_want("Google Benchmark" benchmark::benchmark libbenchmark-dev)
endif()
router_want("Python's headers, 3.10 or newer" Python::Module python3-dev)

if(missing)
  list(JOIN missing ", " missing)
  list(JOIN missing_packages " " missing_packages)
  message(FATAL_ERROR
    "vllm-router needs what was not found here: ${missing}. On Debian/Ubuntu: apt-get install ${missing_packages} "
    "(or `make deps` in the source tree for everything at once).")
endif()

# pybind11 comes from PyPI with the build's own Python.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import pybind11; print(pybind11.get_cmake_dir())"
  OUTPUT_VARIABLE ROUTER_PYBIND11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(pybind11 2.12 CONFIG QUIET HINTS ${ROUTER_PYBIND11_DIR})
if(NOT pybind11_FOUND)
  message(FATAL_ERROR
    "vllm-router needs pybind11 2.12 or newer, which ${Python_EXECUTABLE} does not have. "
    "Install it with: ${Python_EXECUTABLE} -m pip install pybind11 (or run `make deps`).")
endif()
