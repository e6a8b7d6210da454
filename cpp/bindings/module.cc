// Table of contents of the extension `vllm_router._core`. Internals for tests are in another: testing_module.cc.
#include <string>

#include "base/version.h"
#include "bindings/bindings.h"
#include "bindings/callables.h"

PYBIND11_MODULE(_core, module) {
  using namespace vllm_router;
  module.doc() = "C++ core of vllm-router; use the names in `vllm_router` instead.";
  module.attr("__version__") = std::string(Version());
  BindBlockCacheTracker(module);
  BindCatalogues(module);
  BindHashBlocks(module);
  BindHashRing(module);
  BindPrefixTree(module);
  BindReplay(module);
  BindRouter(module);
  BindJoinedPeers(module);
  BindServer(module);
  BindSimulation(module);
  DocumentCallables(module);
  pybind11::module_ replay = module.attr("replay");
  DocumentCallables(replay, "replay.");
}
