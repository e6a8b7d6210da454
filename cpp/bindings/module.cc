// Table of contents of the extension `vllm_router._core`.
#include <string>

#include "base/version.h"
#include "bindings/bindings.h"

PYBIND11_MODULE(_core, module) {
  using namespace vllm_router;
  module.doc() = "C++ core of vllm-router; use the names in `vllm_router` instead.";
  module.attr("__version__") = std::string(Version());
  BindBlockCacheTracker(module);
  BindErrors(module);
  BindHashBlocks(module);
  BindHashRing(module);
  BindPrefixTree(module);
  BindReplay(module);
  BindRouter(module);
  BindServer(module);
  BindSimulation(module);

  pybind11::module_ testing = module.def_submodule("testing", "Internals for the project's own tests.");
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
