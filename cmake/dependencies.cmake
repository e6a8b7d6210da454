# System packages. What is missing is collected and named in one sentence; `make deps` installs all of it.
set(missing "")
set(missing_packages "")

macro(router_want what target debian_package)
  if(NOT TARGET ${target})
    list(APPEND missing "${what}")
    list(APPEND missing_packages ${debian_package})
  endif()
endmacro()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(absl QUIET)
router_want(Abseil absl::status libabsl-dev)
find_package(simdjson QUIET)
router_want(simdjson simdjson::simdjson libsimdjson-dev)
find_package(spdlog QUIET)
router_want(spdlog spdlog::spdlog libspdlog-dev)
find_package(prometheus-cpp QUIET)
router_want(prometheus-cpp prometheus-cpp::core prometheus-cpp-dev)
find_package(Boost 1.81 QUIET)
router_want("the Boost headers, 1.81 or newer" Boost::headers libboost1.81-dev)

find_package(OpenSSL 3.0 QUIET COMPONENTS Crypto SSL)
router_want("OpenSSL, 3.0 or newer" OpenSSL::Crypto libssl-dev)

find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(XXHASH_INCLUDE_DIR)
  add_library(router_xxhash INTERFACE)
  target_include_directories(router_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})
endif()
router_want(xxHash router_xxhash libxxhash-dev)

if(ROUTER_BENCHMARKS)
  find_package(benchmark QUIET)
  router_want("Google Benchmark" benchmark::benchmark libbenchmark-dev)
endif()

find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
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
