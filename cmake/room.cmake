# Warnings and sanitizers live on one interface target; a room is a static library under cpp/.

add_library(router_flags INTERFACE)
target_compile_options(router_flags INTERFACE -Wall -Wextra -Wpedantic -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  target_compile_options(router_flags INTERFACE -Wthread-safety) # cpp/base/mutex.h
endif()
if(ROUTER_WARNINGS_AS_ERRORS)
  target_compile_options(router_flags INTERFACE -Werror)
endif()
if(ROUTER_SANITIZE)
  target_compile_options(router_flags INTERFACE -fsanitize=${ROUTER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(router_flags INTERFACE -fsanitize=${ROUTER_SANITIZE})
endif()
if(ROUTER_SANITIZE MATCHES undefined)
  # The check of vtables opens a pipe to look at memory, and takes having no descriptor left for a broken object.
  target_compile_options(router_flags INTERFACE -fno-sanitize=vptr)
endif()
if(ROUTER_SANITIZE MATCHES thread)
  # TSan does not understand fences; what passes between our threads goes through Asio's mutexes as well.
  target_compile_definitions(router_flags INTERFACE BOOST_ASIO_DISABLE_FENCED_BLOCK)
endif()
target_include_directories(router_flags INTERFACE ${PROJECT_SOURCE_DIR}/cpp)

# Headers from outside that many sources include: a third of the compiler's time without ROUTER_PRECOMPILE. Sources include
# what they use all the same; builds with ccache, which compile without this, show what is missing.
set(precompiled <algorithm> <array> <atomic> <bit> <charconv> <chrono> <coroutine> <cstdint> <cstring> <deque> <functional> <map>
  <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <string> <string_view> <thread> <tuple> <unordered_map>
  <unordered_set> <utility> <variant> <vector> <absl/container/flat_hash_map.h> <absl/container/flat_hash_set.h>
  <absl/container/inlined_vector.h> <absl/status/statusor.h>)

# router_room(NAME ROOMS rooms it may include… LIBRARIES third-party targets…): all *.cc of its folder.
# The ROOMS of each call are the arrows of docs/explanation/architecture.md; tests/repo checks them.
function(router_room name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;LIBRARIES;PUBLIC_LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  add_library(router_${name} STATIC ${sources})
  # Three quarters of a compiler's time are headers. Names in anonymous namespaces of one room must differ; a coroutine's
  # frame may hold a type of such a namespace. Sources with options of their own stay alone.
  set_target_properties(router_${name} PROPERTIES UNITY_BUILD ${ROUTER_GROUP_SOURCES} UNITY_BUILD_BATCH_SIZE 12)
  if(ROUTER_GROUP_SOURCES AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With more to inline, g++ 12 warns of elements of an absl::InlinedVector where there are none.
    target_compile_options(router_${name} PRIVATE -Wno-subobject-linkage -Wno-array-bounds)
  endif()
  list(TRANSFORM ROOM_ROOMS PREPEND router_)
  target_link_libraries(router_${name} PUBLIC router_flags ${ROOM_ROOMS} ${ROOM_PUBLIC_LIBRARIES} PRIVATE ${ROOM_LIBRARIES})
  if(ROUTER_PRECOMPILE AND name STREQUAL base)
    target_precompile_headers(router_base PRIVATE ${precompiled})
  elseif(ROUTER_PRECOMPILE)
    target_precompile_headers(router_${name} REUSE_FROM router_base)
  endif()
endfunction()
