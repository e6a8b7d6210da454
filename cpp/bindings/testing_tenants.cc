// Limits of tenants, what was used of them, the table of both, and what a request is told, without a server.
#include <pybind11/stl.h>

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "admission/admission_settings.h"
#include "admission/fleet_limits.h"
#include "admission/tenant_limits.h"
#include "admission/tenant_table.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "proxy/admission/tenant_limit.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace pybind11::literals;

// None: no wait helps.
std::optional<int64_t> WaitOrNever(int64_t wait_ns) {
  return wait_ns == RateBucket::kNever ? std::nullopt : std::optional(wait_ns);
}

// The error's code and the wait; None: not rejected.
using MaybeRejection = std::optional<std::pair<std::string, std::optional<int64_t>>>;

MaybeRejection RejectionRow(const std::optional<TenantRejected>& rejected) {
  if (!rejected) return std::nullopt;
  return std::pair(
      std::string(kTenantRejectionCodes[static_cast<size_t>(rejected->reason)]),
      WaitOrNever(rejected->wait_ns));
}

class TestRateBucket {
 public:
  TestRateBucket(uint64_t per_minute, int64_t burst_ns) { SetPace(per_minute, burst_ns, 1); }

  void SetPace(uint64_t per_minute, int64_t burst_ns, uint32_t parts) {
    pace_ = {.per_minute = per_minute, .burst_ns = burst_ns, .parts = parts};
  }
  std::optional<int64_t> Take(uint64_t amount, int64_t now_ns) {
    return WaitOrNever(bucket_.Take(pace_, amount, now_ns));
  }
  void Settle(uint64_t taken, uint64_t actual, int64_t now_ns) {
    bucket_.Settle(pace_, taken, actual, now_ns);
  }
  void Charge(uint64_t amount, int64_t at_ns, int64_t now_ns) {
    bucket_.Charge(pace_, amount, at_ns, now_ns);
  }
  int64_t Used(int64_t now_ns) const { return bucket_.Used(now_ns).nanos; }
  std::tuple<uint64_t, uint64_t, int64_t> Level(int64_t now_ns) const {
    const RateLevel level = LevelOf(pace_, bucket_.Used(now_ns));
    return {level.limit, level.remaining, level.reset_ns};
  }

 private:
  RatePace pace_;
  RateBucket bucket_;
};

class TestTenantMeter {
 public:
  explicit TestTenantMeter(const TenantLimits& limits) : limits_(limits) {}

  MaybeRejection Begin(int64_t now_ns) { return RejectionRow(meter_.Begin(limits_, now_ns)); }
  void End() { meter_.End(); }
  void ReturnRequest(int64_t now_ns) { meter_.ReturnRequest(limits_, now_ns); }
  MaybeRejection TakeTokens(uint64_t amount, int64_t now_ns) {
    return RejectionRow(meter_.TakeTokens(limits_, amount, now_ns));
  }
  void SettleTokens(uint64_t taken, uint64_t actual, int64_t now_ns) {
    meter_.SettleTokens(limits_, taken, actual, now_ns);
  }
  uint64_t open() const { return meter_.open(); }
  bool IsUnused(int64_t now_ns) const { return meter_.IsUnused(now_ns); }

 private:
  const TenantLimits limits_;
  TenantMeter meter_;
};

// A meter of the table while it is held. Its tokens are limited to 60 per minute, at most 60 at once: one per second.
class TestTenantHold {
 public:
  explicit TestTenantHold(TenantTable::Hold hold) : hold_(std::move(hold)) {}

  // Two holds with the same number have the same meter.
  uint64_t number() const { return reinterpret_cast<uintptr_t>(&**hold_); }
  bool is_shared() const { return hold_->is_shared(); }
  bool TakeTokens(uint64_t amount, int64_t now_ns) {
    return !(*hold_)->TakeTokens(kLimits, amount, now_ns).has_value();
  }
  void Begin(int64_t now_ns) { (*hold_)->Begin(kLimits, now_ns); }
  void End() { (*hold_)->End(); }
  void Release() { hold_.reset(); }

 private:
  static constexpr TenantLimits kLimits = {.tokens_per_minute = 60, .burst_ms = 60'000};

  std::optional<TenantTable::Hold> hold_;
};

// With the caches of two threads.
class TestTenantTable {
 public:
  explicit TestTenantTable(size_t max_tenants) : table_(max_tenants) {}

  std::unique_ptr<TestTenantHold> Find(const std::string& tenant, int64_t now_ns, size_t thread, bool named) {
    return std::make_unique<TestTenantHold>(table_.Find(tenant, now_ns, &caches_.at(thread), named));
  }
  std::vector<std::tuple<std::string, uint64_t, int64_t, int64_t>> Read(int64_t now_ns, size_t most) const {
    std::vector<std::tuple<std::string, uint64_t, int64_t, int64_t>> rows;
    for (const TenantTable::Row& row : table_.Read(now_ns, most))
      rows.emplace_back(row.tenant, row.open, row.requests_used.nanos, row.tokens_used.nanos);
    return rows;
  }
  size_t size() const { return table_.size(); }
  uint64_t shared_finds() const { return table_.shared_finds(); }

 private:
  TenantTable table_;
  std::array<TenantTable::Cache, 2> caches_;
};

// One request after another of a tenant, under the same lines.
class TestTenantLimit {
 public:
  TestTenantLimit(const std::string& lines, std::string tenant)
      : settings_(std::make_shared<const AdmissionSettings>(ValueOrThrow(AdmissionSettings::Parse(lines)))),
        tenant_(std::move(tenant)),
        table_(16),
        thread_(table_) {}

  // Whether it has limits. The next request.
  bool Next(int64_t now_ns) {
    limit_.reset();
    std::optional<TenantLimit> found = TenantLimit::Find(&thread_, *settings_, tenant_, now_ns);
    if (found) limit_ = std::make_unique<TenantLimit>(*std::move(found));
    return limit_ != nullptr;
  }
  TenantLimit& limit() { return *limit_; }
  std::vector<std::pair<std::string, std::string>> Fields(bool anthropic, int64_t now_ns, int64_t unix_us) {
    std::vector<HeaderField> fields;
    limit_->AddFields(anthropic, now_ns, unix_us, &fields);
    std::vector<std::pair<std::string, std::string>> rows;
    for (const HeaderField& field : fields) rows.emplace_back(field.name, field.value);
    return rows;
  }

 private:
  std::shared_ptr<const AdmissionSettings> settings_;
  const std::string tenant_;
  TenantTable table_;
  ThreadTenants thread_;
  std::unique_ptr<TenantLimit> limit_;
};

// A router's meters, and what it and others tell of them.
class TestFleetLimits {
 public:
  TestFleetLimits(const std::string& lines, size_t max_tenants)
      : settings_(ValueOrThrow(AdmissionSettings::Parse(lines))), table_(max_tenants), limits_(table_) {}

  MaybeRejection Begin(const std::string& tenant, int64_t now_ns) {
    return RejectionRow(Find(tenant, now_ns)->Begin(LimitsOf(tenant), now_ns));
  }
  void End(const std::string& tenant, int64_t now_ns) { Find(tenant, now_ns)->End(); }
  MaybeRejection TakeTokens(const std::string& tenant, uint64_t amount, int64_t now_ns) {
    return RejectionRow(Find(tenant, now_ns)->TakeTokens(LimitsOf(tenant), amount, now_ns));
  }
  void SettleTokens(const std::string& tenant, uint64_t taken, uint64_t actual, int64_t now_ns) {
    Find(tenant, now_ns)->SettleTokens(LimitsOf(tenant), taken, actual, now_ns);
  }
  py::bytes Tell(bool full, int64_t now_ns) { return limits_.Tell(full, now_ns); }
  void Hear(uint64_t router, const py::bytes& report, int64_t told_ns, int64_t now_ns, uint32_t interval_ms) {
    limits_.Hear(
        settings_,
        {.router = router, .told_ns = told_ns, .interval_ms = interval_ms, .bytes = std::string_view(report)},
        now_ns);
  }
  // Of each tenant that has used something: open here, open at others, and the nanoseconds used of both rates.
  std::map<std::string, std::tuple<uint64_t, uint64_t, int64_t, int64_t>> Read(int64_t now_ns) const {
    std::map<std::string, std::tuple<uint64_t, uint64_t, int64_t, int64_t>> rows;
    for (const TenantTable::Row& row : table_.Read(now_ns, SIZE_MAX))
      rows[row.tenant] = {row.open, row.peers_open, row.requests_used.nanos, row.tokens_used.nanos};
    return rows;
  }
  std::map<std::string, uint64_t> Counts() const {
    return {{"told", limits_.count(FleetLimits::kTold)},
            {"delayed", limits_.count(FleetLimits::kUntold)},
            {"heard", limits_.count(FleetLimits::kHeard)},
            {"ignored", limits_.count(FleetLimits::kIgnored)},
            {"no_room", limits_.count(FleetLimits::kNoRoom)},
            {"malformed", limits_.count(FleetLimits::kMalformed)}};
  }
  FleetLimits& limits() { return limits_; }
  size_t size() const { return table_.size(); }

 private:
  TenantTable::Hold Find(const std::string& tenant, int64_t now_ns) {
    return table_.Find(tenant, now_ns, &cache_, settings_.Names(tenant));
  }
  TenantLimits LimitsOf(const std::string& tenant) const {
    return PartOf(settings_.OfTenant(tenant).limits, table_.parts());
  }

  const AdmissionSettings settings_;
  TenantTable table_;
  TenantTable::Cache cache_;
  FleetLimits limits_;
};

}  // namespace

void BindTestingTenants(py::module_& testing) {
  testing.attr("MOST_DEBT_NS") = RateBucket::kMostDebtNs;
  py::class_<TestRateBucket>(testing, "RateBucket")
      .def(py::init<uint64_t, int64_t>(), "per_minute"_a, "burst_ns"_a)
      .def("set_pace", &TestRateBucket::SetPace, "per_minute"_a, "burst_ns"_a, "parts"_a = 1)
      .def("charge", &TestRateBucket::Charge, "amount"_a, "at_ns"_a, "now_ns"_a)
      .def("take", &TestRateBucket::Take, "amount"_a, "now_ns"_a)
      .def("settle", &TestRateBucket::Settle, "taken"_a, "actual"_a, "now_ns"_a)
      .def("used", &TestRateBucket::Used, "now_ns"_a)
      .def("level", &TestRateBucket::Level, "now_ns"_a);
  py::class_<TestTenantMeter>(testing, "TenantMeter")
      .def(
          py::init([](uint64_t concurrency, uint64_t requests, uint64_t tokens, int64_t burst_ms) {
            return std::make_unique<TestTenantMeter>(TenantLimits{
                .concurrency = concurrency,
                .requests_per_minute = requests,
                .tokens_per_minute = tokens,
                .burst_ms = burst_ms});
          }),
          "concurrency"_a = 0, "requests_per_minute"_a = 0, "tokens_per_minute"_a = 0, "burst_ms"_a = 10'000)
      .def("begin", &TestTenantMeter::Begin, "now_ns"_a)
      .def("return_request", &TestTenantMeter::ReturnRequest, "now_ns"_a)
      .def("end", &TestTenantMeter::End)
      .def("take_tokens", &TestTenantMeter::TakeTokens, "amount"_a, "now_ns"_a)
      .def("settle_tokens", &TestTenantMeter::SettleTokens, "taken"_a, "actual"_a, "now_ns"_a)
      .def_property_readonly("open", &TestTenantMeter::open)
      .def("is_unused", &TestTenantMeter::IsUnused, "now_ns"_a);
  py::class_<TestTenantHold>(testing, "TenantHold")
      .def_property_readonly("number", &TestTenantHold::number)
      .def_property_readonly("is_shared", &TestTenantHold::is_shared)
      .def("take_tokens", &TestTenantHold::TakeTokens, "amount"_a, "now_ns"_a)
      .def("begin", &TestTenantHold::Begin, "now_ns"_a)
      .def("end", &TestTenantHold::End)
      .def("release", &TestTenantHold::Release);
  py::class_<TestTenantTable>(testing, "TenantTable")
      .def(py::init<size_t>(), "max_tenants"_a)
      .def(
          "find", &TestTenantTable::Find, "tenant"_a, "now_ns"_a = 0, "thread"_a = 0, "named"_a = false,
          py::keep_alive<0, 1>())
      .def("read", &TestTenantTable::Read, "now_ns"_a = 0, "most"_a = 256)
      .def("__len__", &TestTenantTable::size)
      .def_property_readonly("shared_finds", &TestTenantTable::shared_finds);
  testing.attr("MOST_PEER_DEBT_NS") = RateBucket::kMostPeerDebtNs;
  py::class_<TestFleetLimits>(testing, "FleetLimits")
      .def(py::init<const std::string&, size_t>(), "lines"_a, "max_tenants"_a = 64)
      .def("begin", &TestFleetLimits::Begin, "tenant"_a, "now_ns"_a)
      .def("end", &TestFleetLimits::End, "tenant"_a, "now_ns"_a)
      .def("take_tokens", &TestFleetLimits::TakeTokens, "tenant"_a, "amount"_a, "now_ns"_a)
      .def("settle_tokens", &TestFleetLimits::SettleTokens, "tenant"_a, "taken"_a, "actual"_a, "now_ns"_a)
      .def("tell", &TestFleetLimits::Tell, "full"_a, "now_ns"_a)
      .def(
          "hear", &TestFleetLimits::Hear, "router"_a, "report"_a, "told_ns"_a, "now_ns"_a,
          "interval_ms"_a = 250)
      .def(
          "turn",
          [](TestFleetLimits& self, bool connected, uint32_t routers, int64_t now_ns) {
            self.limits().Turn(connected, routers, now_ns);
          },
          "connected"_a, "routers"_a, "now_ns"_a)
      .def("read", &TestFleetLimits::Read, "now_ns"_a)
      .def("counts", &TestFleetLimits::Counts)
      .def("__len__", &TestFleetLimits::size);
  testing.def("duration_text", &DurationText, "nanos"_a);
  py::class_<TestTenantLimit>(testing, "TenantLimit")
      .def(py::init<const std::string&, std::string>(), "lines"_a, "tenant"_a)
      .def("next", &TestTenantLimit::Next, "now_ns"_a = 0)
      .def(
          "begin", [](TestTenantLimit& self, int64_t now_ns) { return self.limit().Begin(now_ns); },
          "now_ns"_a = 0)
      .def(
          "take_tokens",
          [](TestTenantLimit& self, uint64_t prompt, uint64_t output, bool counted, int64_t now_ns) {
            return self.limit().TakeTokens(prompt, output, counted, now_ns);
          },
          "prompt"_a, "output"_a = 0, "counted"_a = true, "now_ns"_a = 0)
      .def("return_place", [](TestTenantLimit& self) { self.limit().ReturnPlace(); })
      .def(
          "end",
          [](TestTenantLimit& self, std::optional<uint64_t> used, uint64_t events, int64_t now_ns) {
            self.limit().End(used, events, now_ns);
          },
          "used"_a = py::none(), "events"_a = 0, "now_ns"_a = 0)
      .def_property_readonly(
          "rejected", [](TestTenantLimit& self) { return RejectionRow(self.limit().rejected()); })
      .def_property_readonly("message", [](TestTenantLimit& self) { return self.limit().Message(); })
      .def_property_readonly(
          "retry_after_ns", [](TestTenantLimit& self) { return self.limit().retry_after_ns(); })
      .def("fields", &TestTenantLimit::Fields, "anthropic"_a = false, "now_ns"_a = 0, "unix_us"_a = 0);
}

}  // namespace vllm_router
