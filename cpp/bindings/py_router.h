// PyRouter: a Router as Python holds it; what `_core.Router` is made of. Server and tests take the Router out of it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "routing/router.h"

namespace vllm_router {

class PyRouter {
 public:
  explicit PyRouter(std::shared_ptr<Router> router)
      : router_(std::move(router)), fleet_(&router_->fleet_snapshot()) {}

  Router& router() const { return *router_; }
  const std::shared_ptr<Router>& shared() const { return router_; }

  // The newest fleet. With the GIL, which guards the cache: hold a copy across anything that may run Python code, if
  // only the garbage collector, since that may select too.
  const std::shared_ptr<const FleetView>& fleet() { return fleet_.Get(); }

 private:
  const std::shared_ptr<Router> router_;
  Snapshot<FleetView>::Cached fleet_;
};

// How leaving a `with` block by an exception of this type (or None) reads: quietly, it worked; by an Exception, the
// worker failed; by anything else (CancelledError, GeneratorExit, KeyboardInterrupt), the one who asked has gone.
inline Outcome OutcomeOfExit(pybind11::handle exception_type) {
  if (exception_type.is_none()) return {.end = Outcome::End::kFinished, .status = 200};
  const int failed = PyObject_IsSubclass(exception_type.ptr(), PyExc_Exception);
  if (failed < 0) throw pybind11::error_already_set();
  return {.end = failed == 1 ? Outcome::End::kWorkerFailed : Outcome::End::kClientGone};
}

// The options of a Router by name; missing ones are as usual. `names` gets all names that there are.
RouterOptions RouterOptionsOf(const pybind11::dict& given, std::vector<std::string>* names = nullptr);

}  // namespace vllm_router
