# The compiler and the libraries of wheels, as scripts/build_static_libraries.sh leaves them in ROUTER_STATIC_LIBRARIES.
set(ROUTER_STATIC_LIBRARIES "${CMAKE_CURRENT_LIST_DIR}/../build/static" CACHE PATH "Where they are")
get_filename_component(_directory "${ROUTER_STATIC_LIBRARIES}" ABSOLUTE)
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ROUTER_STATIC_LIBRARIES)

set(CMAKE_C_COMPILER "${_directory}/bin/cc")
set(CMAKE_CXX_COMPILER "${_directory}/bin/c++")
set(CMAKE_AR "${_directory}/bin/ar" CACHE FILEPATH "")
set(CMAKE_RANLIB "${_directory}/bin/ranlib" CACHE FILEPATH "")
# Sections that nothing refers to are left out of the extension.
set(CMAKE_C_FLAGS_INIT "-fvisibility=hidden -ffunction-sections -fdata-sections")
set(CMAKE_CXX_FLAGS_INIT "-fvisibility=hidden -fvisibility-inlines-hidden -ffunction-sections -fdata-sections")
set(CMAKE_MODULE_LINKER_FLAGS_INIT "-Wl,--gc-sections")

# These and no others: a library of the system would need the system's glibc.
list(PREPEND CMAKE_PREFIX_PATH "${_directory}")
set(BOOST_INCLUDEDIR "${_directory}/include")
set(Boost_NO_BOOST_CMAKE ON)
set(Boost_NO_SYSTEM_PATHS ON)
set(OPENSSL_ROOT_DIR "${_directory}")
set(OPENSSL_USE_STATIC_LIBS ON)
unset(_directory)
