// Table of contents of the extension `vllm_router._core`.
#include "bindings/bindings.h"

PYBIND11_MODULE(_core, module) {
  using namespace vllm_router;
  module.doc() = "C++ core of vllm-router; use the names in `vllm_router` instead.";
  BindErrors(module);

  pybind11::module_ testing = module.def_submodule("testing", "Internals for the project's own tests.");
  BindTestingBase(testing);
}
