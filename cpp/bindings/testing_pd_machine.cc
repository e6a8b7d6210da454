// The life cycle of prefill/decode disaggregation, for tests: events and actions by name.
#include <pybind11/stl.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "bindings/bindings.h"
#include "disaggregation/kv_claim.h"
#include "disaggregation/pd_machine.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace py::literals;

constexpr std::string_view kPdOrders[] = {"serial", "concurrent", "sglang"};
constexpr std::string_view kPdKinds[] = {"pair", "decode_only", "local", "bypass"};
constexpr std::string_view kPdCancels[] = {"auto", "always", "never"};
constexpr std::string_view kPdLegs[] = {"idle", "open", "ok", "head", "done", "failed", "closed", "kept"};
constexpr std::string_view kPdClients[] = {"wait", "begun", "gone"};

template <typename Enum, size_t kCount>
Enum PdByName(const std::string_view (&names)[kCount], const std::string& name) {
  for (size_t i = 0; i < kCount; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
  }
  throw py::value_error("no name is " + name);
}

PdEventType PdEventByName(const std::string& name) {
  for (int i = 0; i < kPdEventCount; ++i) {
    if (PdEventName(static_cast<PdEventType>(i)) == name) return static_cast<PdEventType>(i);
  }
  throw py::value_error("no event is called " + name);
}

std::vector<std::string> StepByName(
    PdMachine& machine, const std::string& event, const std::string& kind, const std::string& order,
    bool rebindable, bool p_readable, bool p_unreached, bool timed_out, bool server_error,
    bool decode_can_prefill) {
  std::vector<std::string> names;
  for (const PdAction action : machine.Step(
           {.type = PdEventByName(event),
     .plan =
                {.kind = PdByName<PdAttemptKind>(kPdKinds, kind),
                .order = PdByName<PdOrder>(kPdOrders, order),
                .rebindable = rebindable,
                .decode_can_prefill = decode_can_prefill},
     .p_readable = p_readable,
     .p_unreached = p_unreached,
     .timed_out = timed_out,
     .server_error = server_error})) {
    names.emplace_back(PdActionName(action));
  }
  return names;
}

// Claims by number, and the ends that the keeper got.
class KvClaimHarness final : public KvClaimKeeper {
 public:
  ~KvClaimHarness() override { claims_.clear(); }

  size_t Make(const std::string& parameters) {
    claims_.push_back(std::make_unique<KvClaim>(
        *this, clock_, KvBlocks{.prefill = worker_, .parameters = parameters, .made_ns = clock_.NowNanos()}));
    return claims_.size() - 1;
  }
  size_t Move(size_t number) {
    claims_.push_back(std::make_unique<KvClaim>(std::move(*claims_.at(number))));
    return claims_.size() - 1;
  }
  void Assign(size_t to, size_t from) { *claims_.at(to) = std::move(*claims_.at(from)); }
  void Drop(size_t number) { claims_.at(number).reset(); }
  void End(size_t number, const std::string& how) {
    KvClaim& claim = *claims_.at(number);
    if (how == "redeemed") return claim.Redeem();
    if (how == "rejected") return claim.Reject();
    if (how == "expired") return claim.Expire();
    claim.Orphan();
  }
  size_t Reuse(size_t number) {
    claims_.push_back(std::make_unique<KvClaim>(claims_.at(number)->Reuse()));
    return claims_.size() - 1;
  }
  bool Holds(size_t number) const { return static_cast<bool>(*claims_.at(number)); }
  std::string Parameters(size_t number) const { return claims_.at(number)->blocks().parameters; }
  void Advance(int64_t nanos) { clock_.Advance(nanos); }
  long Owners() const { return worker_.use_count() - 1; }

  // (end, parameters, age), of all claims so far.
  std::vector<std::tuple<std::string, std::string, int64_t>> Ends() const { return ends_; }

  void Ended(KvClaimEnd end, KvBlocks blocks, int64_t age_ns) override {
    ends_.emplace_back(KvClaimEndName(end), std::move(blocks.parameters), age_ns);
  }

 private:
  ManualClock clock_;
  std::shared_ptr<Worker> worker_ =
      std::make_shared<Worker>(WorkerId{0}, WorkerUrl{}, kWeightOne, std::make_shared<WorkerLoad>());
  std::vector<std::tuple<std::string, std::string, int64_t>> ends_;
  std::vector<std::unique_ptr<KvClaim>> claims_;
};

}  // namespace

void BindTestingPdMachine(py::module_& testing) {
  py::class_<PdMachine>(testing, "PdMachine")
      .def(
          py::init([](const std::string& cancel) {
            return PdMachine(PdByName<PdCancelPrefill>(kPdCancels, cancel));
          }),
          "cancel_prefill"_a = "auto")
      .def(
          "step", &StepByName, "event"_a, "kind"_a = "pair", "order"_a = "serial", "rebindable"_a = false,
          "p_readable"_a = false, "p_unreached"_a = false, "timed_out"_a = false, "server_error"_a = false,
          "decode_can_prefill"_a = true)
      // (next, exclude_p, exclude_d, prefer_p, counted)
      .def_property_readonly(
          "retry",
          [](const PdMachine& machine) {
            const PdRetry& retry = machine.retry();
            return py::make_tuple(
                kPdKinds[static_cast<size_t>(retry.next)], retry.exclude_p, retry.exclude_d, retry.prefer_p,
                retry.counted);
          })
      .def_property_readonly("p", [](const PdMachine& m) { return kPdLegs[static_cast<size_t>(m.p())]; })
      .def_property_readonly("d", [](const PdMachine& m) { return kPdLegs[static_cast<size_t>(m.d())]; })
      .def_property_readonly(
          "client", [](const PdMachine& m) { return kPdClients[static_cast<size_t>(m.client())]; })
      .def_property_readonly("choosing", &PdMachine::choosing)
      .def_property_readonly("responded", &PdMachine::responded)
      .def_property_readonly("holds_claim", &PdMachine::holds_claim)
      .def_property_readonly("over", &PdMachine::over);
  testing.def("pd_response_class", [](int status, bool has_retry_after) {
    constexpr std::string_view kClasses[] = {"ok", "busy", "error", "rejected"};
    return kClasses[static_cast<size_t>(PdResponseClassOf(status, has_retry_after))];
  });
  py::class_<KvClaimHarness>(testing, "KvClaimHarness")
      .def(py::init<>())
      .def("make", &KvClaimHarness::Make)
      .def("move", &KvClaimHarness::Move)
      .def("assign", &KvClaimHarness::Assign, "to"_a, "source"_a)
      .def("drop", &KvClaimHarness::Drop)
      .def("end", &KvClaimHarness::End, "number"_a, "how"_a)
      .def("reuse", &KvClaimHarness::Reuse)
      .def("holds", &KvClaimHarness::Holds)
      .def("parameters", &KvClaimHarness::Parameters)
      .def("advance", &KvClaimHarness::Advance, "nanos"_a)
      .def_property_readonly("owners", &KvClaimHarness::Owners)
      .def_property_readonly("ends", &KvClaimHarness::Ends);
}

}  // namespace vllm_router
