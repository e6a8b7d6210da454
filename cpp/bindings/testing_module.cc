// Table of contents of the extension `vllm_router._core_testing`: internals for the project's own tests.
// It is built for tests only and never shipped.
//
// It contains no copy of the libraries. It is linked to `_core`, whose functions and process-wide state
// it uses (the log, the reclamation of memory, pools of frames), so that a test may pass objects of
// `_core` to an internal function. For that, builds with ROUTER_TESTING let `_core` export its symbols;
// CMakeLists.txt has the link options.
#include <string>

#include "bindings/bindings.h"

namespace {

namespace py = pybind11;

// pybind11's description of a function's arguments, which docstrings do not show.
std::string BoundSignature(py::handle function) {
  if (PyInstanceMethod_Check(function.ptr())) function = PyInstanceMethod_GET_FUNCTION(function.ptr());
  PyObject* const record = PyCFunction_Check(function.ptr()) ? PyCFunction_GET_SELF(function.ptr()) : nullptr;
#if PYBIND11_VERSION_MAJOR >= 3
  const auto* const found =
      record != nullptr ? py::detail::function_record_ptr_from_PyObject(record) : nullptr;
#else
  const auto* const found =
      record != nullptr
          ? py::reinterpret_borrow<py::capsule>(record).get_pointer<py::detail::function_record>()
          : nullptr;
#endif
  if (found == nullptr) throw py::type_error("it is not a function that pybind11 made");
  return found->signature;
}

}  // namespace

PYBIND11_MODULE(_core_testing, testing) {
  using namespace vllm_router;
  testing.doc() = "Internals for the project's own tests.";
  pybind11::module_::import("vllm_router._core");  // registers the types that both use, such as Router
  testing.def("bound_signature", &BoundSignature);
  BindTestingAccess(testing);
  BindTestingAdmission(testing);
  BindTestingBase(testing);
  BindTestingBlockIndex(testing);
  BindTestingCache(testing);
  BindTestingClasses(testing);
  BindTestingGrpc(testing);
  BindTestingHashing(testing);
  BindTestingHttp(testing);
  BindTestingEventApplier(testing);
  BindTestingEvents(testing);
  BindTestingIndex(testing);
  BindTestingKvSources(testing);
  BindTestingNet(testing);
  BindTestingPd(testing);
  BindTestingPdMachine(testing);
  BindTestingPdRegistrations(testing);
  BindTestingPicker(testing);
  BindTestingPolicy(testing);
  BindTestingPrefixEvents(testing);
  BindTestingPeerSync(testing);
  BindTestingPrefixTable(testing);
  BindTestingPrefixTree(testing);
  BindTestingProxy(testing);
  BindTestingRedis(testing);
  BindTestingRedisResponses(testing);
  BindTestingRouting(testing);
  BindTestingConditions(testing);
  BindTestingContinuation(testing);
  BindTestingTokenStreams(testing);
  BindTestingHoldout(testing);
  BindTestingDashboard(testing);
  BindTestingPrograms(testing);
  BindTestingReceipts(testing);
  BindTestingSessions(testing);
  BindTestingSharedPool(testing);
  BindTestingSimulation(testing);
  BindTestingSourceState(testing);
  BindTestingStages(testing);
  BindTestingTenants(testing);
  BindTestingTracing(testing);
  BindTestingWorker(testing);
  BindTestingZmq(testing);
}
