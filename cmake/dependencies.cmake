# System packages. Each miss is one sentence that says what to install; `make deps` installs all of them.

function(router_require package target debian_package)
  find_package(${package} QUIET)
  if(NOT TARGET ${target})
    message(FATAL_ERROR
      "vllm-router needs ${package}, which was not found. On Debian/Ubuntu: apt-get install ${debian_package} "
      "(or `make deps` in the source tree for everything at once).")
  endif()
endfunction()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
router_require(absl absl::status libabsl-dev)
router_require(simdjson simdjson::simdjson libsimdjson-dev)
router_require(spdlog spdlog::spdlog libspdlog-dev)
router_require(prometheus-cpp prometheus-cpp::core prometheus-cpp-dev)

find_package(Boost 1.81 QUIET)
if(NOT TARGET Boost::headers)
  message(FATAL_ERROR
    "vllm-router needs the Boost headers, 1.81 or newer, which were not found. On Debian/Ubuntu: "
    "apt-get install libboost1.81-dev (or `make deps` in the source tree for everything at once).")
endif()

find_path(XXHASH_INCLUDE_DIR xxhash.h)
if(NOT XXHASH_INCLUDE_DIR)
  message(FATAL_ERROR
    "vllm-router needs xxHash, which was not found. On Debian/Ubuntu: apt-get install libxxhash-dev "
    "(or `make deps` in the source tree for everything at once).")
endif()
add_library(router_xxhash INTERFACE)
target_include_directories(router_xxhash SYSTEM INTERFACE ${XXHASH_INCLUDE_DIR})

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module)
execute_process(
  COMMAND ${Python_EXECUTABLE} -c "import pybind11; print(pybind11.get_cmake_dir())"
  OUTPUT_VARIABLE ROUTER_PYBIND11_DIR OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_package(pybind11 2.12 CONFIG QUIET HINTS ${ROUTER_PYBIND11_DIR})
if(NOT pybind11_FOUND)
  message(FATAL_ERROR
    "vllm-router needs pybind11 2.12 or newer, which ${Python_EXECUTABLE} does not have. "
    "Install it with: ${Python_EXECUTABLE} -m pip install pybind11 (or run `make deps`).")
endif()
