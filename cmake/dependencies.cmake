# System packages. What is missing is collected and named in one sentence; `make deps` installs all of it.
set(THREADS_PREFER_PTHREAD_FLAG ON)
if(CMAKE_CXX_COMPILER) # else nothing can be looked for, and all counts as missing
  find_package(Threads REQUIRED)
  find_package(absl QUIET)
  find_package(simdjson QUIET)
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
  # Nor has its libhiredis-dev. Before 0.14.1 the length of an array could overflow (CVE-2021-32765).
  find_path(HIREDIS_INCLUDE_DIR hiredis/hiredis.h)
  find_library(HIREDIS_LIBRARY hiredis)
  if(HIREDIS_INCLUDE_DIR AND HIREDIS_LIBRARY)
    file(READ ${HIREDIS_INCLUDE_DIR}/hiredis/hiredis.h hiredis_version)
    string(REGEX REPLACE ".*HIREDIS_MAJOR ([0-9]+).*HIREDIS_MINOR ([0-9]+).*HIREDIS_PATCH ([0-9]+).*" "\\1.\\2.\\3"
           hiredis_version "${hiredis_version}")
    if(hiredis_version VERSION_GREATER_EQUAL 0.14.1)
      add_library(router_hiredis INTERFACE)
      target_include_directories(router_hiredis SYSTEM INTERFACE ${HIREDIS_INCLUDE_DIR})
      target_link_libraries(router_hiredis INTERFACE ${HIREDIS_LIBRARY})
    endif()
  endif()
  # Nor has its libnghttp2-dev. Before 1.52, and Debian's first 1.52, a client may reset streams without end (CVE-2023-44487).
  find_path(NGHTTP2_INCLUDE_DIR nghttp2/nghttp2.h)
  find_library(NGHTTP2_LIBRARY NAMES nghttp2 nghttp2_static)
  if(NGHTTP2_INCLUDE_DIR AND NGHTTP2_LIBRARY)
    file(STRINGS ${NGHTTP2_INCLUDE_DIR}/nghttp2/nghttp2.h nghttp2_limits_resets REGEX "nghttp2_option_set_stream_reset_rate_limit")
    if(nghttp2_limits_resets)
      add_library(router_nghttp2 INTERFACE)
      target_include_directories(router_nghttp2 SYSTEM INTERFACE ${NGHTTP2_INCLUDE_DIR})
      target_link_libraries(router_nghttp2 INTERFACE ${NGHTTP2_LIBRARY})
    endif()
  endif()
  if(ROUTER_BENCHMARKS)
    find_package(benchmark QUIET)
  endif()
  find_package(Python 3.10 QUIET COMPONENTS Interpreter Development.Module)
endif()

# The names of Debian's packages are Ubuntu's as well.
set(missing "")
set(missing_debian "")
set(missing_fedora "")
macro(router_want what target debian fedora)
  if(NOT TARGET ${target})
    list(APPEND missing "${what}")
    list(APPEND missing_debian ${debian})
    list(APPEND missing_fedora ${fedora})
  endif()
endmacro()

set(boost libboost-dev)
if(EXISTS /etc/os-release)
  file(STRINGS /etc/os-release os_release)
  if(os_release MATCHES "VERSION_CODENAME=bookworm")
    set(boost libboost1.81-dev) # its libboost-dev is older
  endif()
endif()
if(NOT CMAKE_CXX_COMPILER)
  list(APPEND missing "a C++20 compiler (without which no library could be looked for)")
  list(APPEND missing_debian g++)
  list(APPEND missing_fedora gcc-c++)
endif()
router_want(Abseil absl::status libabsl-dev abseil-cpp-devel)
router_want(simdjson simdjson::simdjson libsimdjson-dev simdjson-devel)
router_want(prometheus-cpp prometheus-cpp::core prometheus-cpp-dev prometheus-cpp-devel)
router_want("the Boost headers, 1.81 or newer" Boost::headers ${boost} boost-devel)
router_want("OpenSSL, 3.0 or newer" OpenSSL::Crypto libssl-dev openssl-devel)
router_want(xxHash router_xxhash libxxhash-dev xxhash-devel)
router_want("ZeroMQ (libzmq), 4.3 or newer" router_zmq libzmq3-dev zeromq-devel)
router_want("hiredis, 0.14.1 or newer" router_hiredis libhiredis-dev hiredis-devel)
router_want("nghttp2 that limits resets of streams, 1.57 or Debian's 1.52" router_nghttp2 libnghttp2-dev libnghttp2-devel)
if(ROUTER_BENCHMARKS)
  router_want("Google Benchmark" benchmark::benchmark libbenchmark-dev google-benchmark-devel)
endif()
router_want("Python's headers, 3.10 or newer" Python::Module python3-dev python3-devel)

if(missing)
  list(JOIN missing ", " missing)
  list(JOIN missing_debian " " missing_debian)
  list(JOIN missing_fedora " " missing_fedora)
  message(FATAL_ERROR
    "vllm-router needs what was not found here: ${missing}.\n"
    # Lines that begin with a blank are not broken.
    "On Debian or Ubuntu:\n  apt-get install ${missing_debian}\n"
    "On Fedora:\n  dnf install ${missing_fedora}\n"
    "(In the source tree, `make deps` installs all of it.)")
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
