// Table of contents of the extension `vllm_router._core_testing`: internals for the project's own tests. It is built
// for tests only and never shipped.
//
// It brings no copy of the rooms. It is linked to `_core`, whose functions and process-wide state it uses (the log, the
// reclamation of memory, pools of frames), so that a test may hand what `_core` made to an internal function. For
// that, builds with ROUTER_TESTING let `_core` export its symbols; CMakeLists.txt has the link options.
#include "bindings/bindings.h"

PYBIND11_MODULE(_core_testing, testing) {
  using namespace vllm_router;
  testing.doc() = "Internals for the project's own tests.";
  pybind11::module_::import("vllm_router._core");  // registers the types that both know, such as Router
  BindTestingAccess(testing);
  BindTestingBase(testing);
  BindTestingBlockIndex(testing);
  BindTestingHashing(testing);
  BindTestingHttp(testing);
  BindTestingIndex(testing);
  BindTestingNet(testing);
  BindTestingPolicy(testing);
  BindTestingPrefixTree(testing);
  BindTestingProxy(testing);
  BindTestingRouting(testing);
  BindTestingSimulation(testing);
  BindTestingWorker(testing);
}
