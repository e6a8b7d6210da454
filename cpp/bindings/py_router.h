// PyRouter: a Router as Python holds it, the class behind `_core.Router`. Server and tests take the
// Router out of it.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "bindings/py_receipts.h"
#include "events/kv_push.h"
#include "routing/router.h"

namespace vllm_router {

class PyRouter {
 public:
  explicit PyRouter(std::shared_ptr<Router> router)
      : router_(std::move(router)),
        fleet_(&router_->fleet_snapshot()),
        receipts_(
            std::make_shared<PyReceipts>(router_->options().receipts, router_->options().policy.block_size)),
        pushes_(
            router_->pool().index() == nullptr
                ? nullptr
                : std::make_unique<KvPushReceiver>(&router_->pool().index()->reported())) {}

  Router& router() const { return *router_; }
  const std::shared_ptr<Router>& shared() const { return router_; }

  // The newest fleet. Guarded by the GIL: hold a copy across anything that may run Python code,
  // including the garbage collector, since that code may call select too.
  const std::shared_ptr<const FleetView>& fleet() { return fleet_.Get(); }

  // Of tickets that Python finishes, which may outlive this.
  const std::shared_ptr<PyReceipts>& receipts() const { return receipts_; }

  // For KV events that Python pushes. Null: the policy matches no blocks.
  KvPushReceiver* pushes() const { return pushes_.get(); }

 private:
  const std::shared_ptr<Router> router_;
  Snapshot<FleetView>::Cached fleet_;
  const std::shared_ptr<PyReceipts> receipts_;
  const std::unique_ptr<KvPushReceiver> pushes_;
};

// The outcome of leaving a `with` block by an exception of this type (or None): None, it finished; an
// Exception, the worker failed; any other (CancelledError, GeneratorExit, KeyboardInterrupt), the client
// has gone.
inline Outcome OutcomeOfExit(pybind11::handle exception_type) {
  if (exception_type.is_none()) return {.end = Outcome::End::kFinished, .status = 200};
  const int failed = PyObject_IsSubclass(exception_type.ptr(), PyExc_Exception);
  if (failed < 0) throw pybind11::error_already_set();
  return {.end = failed == 1 ? Outcome::End::kWorkerFailed : Outcome::End::kClientGone};
}

// The options of a Router by name; missing ones get their defaults. `names` gets all option names.
RouterOptions RouterOptionsOf(const pybind11::dict& given, std::vector<std::string>* names = nullptr);

}  // namespace vllm_router
