// KV events from Python: pushed to a Router by a test, a converter or a notebook.
#pragma once

#include <pybind11/pybind11.h>

#include "bindings/py_router.h"

namespace vllm_router {

// Adds `push_kv_events`.
void BindKvEvents(pybind11::class_<PyRouter>* router);

}  // namespace vllm_router
