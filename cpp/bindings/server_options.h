// Options of a server as Python has them, by their flags' names: server.cc reads them once, and a test
// reads changes of them again.
#pragma once

#include <pybind11/pybind11.h>

#include "proxy/api/server_options.h"

namespace vllm_router {

// `options` with what is given. TypeError for a name that is none, ValueError for a value that is not of
// its type. Visible to _core_testing, unlike the rest of the bindings.
[[gnu::visibility("default")]] ServerOptions ToServerOptions(
    const pybind11::kwargs& given, ServerOptions options = {});

}  // namespace vllm_router
