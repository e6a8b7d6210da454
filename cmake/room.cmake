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

# router_room(NAME ROOMS rooms it may include… LIBRARIES third-party targets…): all *.cc of its folder.
# The ROOMS of each call are the arrows of docs/explanation/architecture.md; tests/repo checks them.
function(router_room name)
  cmake_parse_arguments(ROOM "" "" "ROOMS;LIBRARIES;PUBLIC_LIBRARIES" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  add_library(router_${name} STATIC ${sources})
  list(TRANSFORM ROOM_ROOMS PREPEND router_)
  target_link_libraries(router_${name} PUBLIC router_flags ${ROOM_ROOMS} ${ROOM_PUBLIC_LIBRARIES} PRIVATE ${ROOM_LIBRARIES})
endfunction()
