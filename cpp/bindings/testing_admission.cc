// Priority classes, names of tenants, attributes of keys, tokens of tenants, room and fair queues, without a server.
#include <pybind11/stl.h>

#include <array>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "admission/fair_queue.h"
#include "admission/key_grant.h"
#include "admission/priority_class.h"
#include "admission/room.h"
#include "admission/tenant_name.h"
#include "admission/tenant_tokens.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "proxy/admission/client_rules.h"
#include "proxy/api/server_options.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace pybind11::literals;

using Texts = std::vector<std::pair<std::string, std::string>>;
using MaybeClass = std::optional<std::string>;

std::vector<HeaderField> ClaimFields(const Texts& texts) {
  std::vector<HeaderField> fields;
  for (const auto& [name, value] : texts) fields.push_back({name, value});
  return fields;
}

std::optional<PriorityClass> ClassNamed(const MaybeClass& name) {
  if (!name) return std::nullopt;
  const std::optional<PriorityClass> found = PriorityClassByName(*name);
  if (!found) throw py::value_error("there is no class " + *name);
  return found;
}

MaybeClass ClassName(const std::optional<PriorityClass>& priority_class) {
  return priority_class ? MaybeClass(PriorityClassName(*priority_class)) : std::nullopt;
}

py::dict GrantOf(const KeyGrant& grant) {
  return py::dict(
      "tenant"_a = grant.tenant, "class"_a = ClassName(grant.priority_class),
      "max_class"_a = ClassName(grant.max_class), "trusted"_a = grant.trusted,
      "highest"_a = PriorityClassName(grant.highest()));
}

using TenantCounts = std::tuple<uint64_t, uint64_t, uint64_t>;  // prompt, cached, completion

TenantUse TenantCountsOf(const TenantCounts& counts) {
  return {.prompt = std::get<0>(counts), .cached = std::get<1>(counts), .completion = std::get<2>(counts)};
}
TenantCounts TenantCountsOf(const TenantUse& counts) {
  return {counts.prompt, counts.cached, counts.completion};
}

// A table and its rows in metrics.
class TestTenants {
 public:
  TestTenants(size_t max_tenants, size_t others) : tokens_(max_tenants), labels_(others) {}

  void Add(const std::string& tenant, const TenantCounts& counts, bool configured) {
    tokens_.Add(tenant, configured, TenantCountsOf(counts));
  }
  void Reject(const std::string& tenant, size_t reason) {
    tokens_.Add(tenant, /*configured=*/false, RejectionOf(static_cast<TenantRejection>(reason)));
  }
  // Rejections of a scrape by tenant, of each reason.
  std::map<std::string, std::array<uint64_t, kTenantRejections>> ScrapeRejected() {
    std::map<std::string, std::array<uint64_t, kTenantRejections>> rows;
    for (const TenantRow& row : labels_.Follow(tokens_.Read())) rows[row.tenant] = row.tokens.rejected;
    return rows;
  }
  std::map<std::string, TenantCounts> Table() const {
    std::map<std::string, TenantCounts> table;
    for (const TenantSums::Tenant& tenant : tokens_.Read().tenants)
      table[tenant.name] = TenantCountsOf(tenant.tokens);
    return table;
  }
  TenantCounts Total() const { return TenantCountsOf(tokens_.Read().total); }
  std::vector<std::pair<std::string, TenantCounts>> Scrape() {
    std::vector<std::pair<std::string, TenantCounts>> rows;
    for (const TenantRow& row : labels_.Follow(tokens_.Read()))
      rows.emplace_back(row.tenant, TenantCountsOf(row.tokens));
    return rows;
  }

 private:
  TenantTokens tokens_;
  TenantLabels labels_;
};

// Of open, waiting, queued_prefill, tokens, capacity, idle_seconds and, if there is a report, kv_usage, reported_waiting and
// sent; what is left out is 0.
WorkerRoom WorkerRoomOf(const py::dict& facts) {
  const auto number = [&facts](const char* name) {
    return facts.contains(name) ? facts[name].cast<uint64_t>() : 0;
  };
  WorkerRoom worker{
      .open = number("open"),
      .waiting = number("waiting"),
      .queued_prefill = number("queued_prefill"),
      .tokens = number("tokens"),
      .capacity = number("capacity"),
      .idle_ns = static_cast<int64_t>(number("idle_seconds")) * 1'000'000'000};
  if (facts.contains("kv_usage")) {
    worker.report = {
        .kv_usage = facts["kv_usage"].cast<double>(),
        .waiting = number("reported_waiting"),
        .sent = number("sent")};
  }
  return worker;
}

// Waiters by number.
class TestFairQueue {
 public:
  TestFairQueue(size_t max_waiters, double quantum)
      : queue_({.max_waiters = max_waiters, .quantum = quantum}) {}

  bool Enqueue(
      uint64_t number, uint64_t tenant, uint64_t cost, double weight,
      const std::vector<std::pair<uint32_t, float>>& holders, std::optional<uint32_t> worker) {
    auto& waiter = waiters_[number];
    waiter = std::make_unique<FairQueue::Waiter>();
    *waiter = {.tenant = tenant, .weight = weight, .cost = cost, .worker = worker};
    for (size_t i = 0; i < holders.size(); ++i) waiter->holders.at(i) = {holders[i].first, holders[i].second};
    return queue_.Enqueue(waiter.get());
  }
  std::optional<uint64_t> Next(const std::vector<uint32_t>& workers) {
    const FairQueue::Waiter* const next = queue_.Next(workers);
    return next != nullptr ? std::optional(NumberOf(next)) : std::nullopt;
  }
  size_t WaitersOf(uint64_t tenant) const { return queue_.WaitersOf(tenant); }
  std::optional<uint64_t> NewestOf(uint64_t tenant) const {
    const FairQueue::Waiter* const newest = queue_.NewestOf(tenant);
    return newest != nullptr ? std::optional(NumberOf(newest)) : std::nullopt;
  }
  bool IsSearched(uint64_t number) const { return FairQueue::IsSearched(*waiters_.at(number)); }
  void Requeue(uint64_t number) { queue_.Requeue(waiters_.at(number).get()); }
  bool Remove(uint64_t number) { return queue_.Remove(waiters_.at(number).get()); }
  void Settle(uint64_t number, uint64_t actual) { queue_.Settle(*waiters_.at(number), actual); }

  uint64_t NumberOf(const FairQueue::Waiter* waiter) const {
    for (const auto& [number, known] : waiters_) {
      if (known.get() == waiter) return number;
    }
    throw py::value_error("it is another queue's waiter");
  }
  const FairQueue& queue() const { return queue_; }

 private:
  std::map<uint64_t, std::unique_ptr<FairQueue::Waiter>> waiters_;
  FairQueue queue_;
};

}  // namespace

void BindTestingAdmission(py::module_& testing) {
  testing.def("class_in_headers", [](const Texts& texts) {
    const HeaderClaim claim = ClassInHeaders(ClaimFields(texts));
    return std::pair(ClassName(claim.claimed), claim.unknown);
  });
  testing.def(
      "class_of_service_tier", [](const std::string& tier) { return ClassName(ClassOfServiceTier(tier)); });
  testing.def(
      "grant_class",
      [](const MaybeClass& headers, const MaybeClass& service_tier, const MaybeClass& alias,
         const MaybeClass& key, const MaybeClass& highest, bool trusts_headers) {
        const ClassGrant grant = GrantClass(
            {.headers = ClassNamed(headers),
             .service_tier = ClassNamed(service_tier),
             .alias = ClassNamed(alias),
             .key = ClassNamed(key)},
            {.highest = *ClassNamed(highest), .trusts_headers = trusts_headers});
        return std::tuple(ClassName(grant.given), ClassName(grant.claimed), grant.clamped);
      },
      "headers"_a = py::none(), "service_tier"_a = py::none(), "alias"_a = py::none(), "key"_a = py::none(),
      "highest"_a = "default", "trusts_headers"_a = false);
  testing.def("is_tenant_name", [](const py::bytes& text) { return IsTenantName(std::string_view(text)); });
  testing.def("tenant_named", [](const py::bytes& text) { return TenantNamed(std::string_view(text)); });
  testing.def("tenant_of_key", [](const std::string& key) { return TenantOfKey(Sha256({key})); });
  testing.def("tenant_in_headers", [](const Texts& texts, const std::string& name) {
    const TenantClaim claim = TenantInHeaders(ClaimFields(texts), name);
    return std::pair(claim.fields, std::string(claim.value));
  });
  testing.def("parse_key_attributes", [](const std::string& text) {
    return GrantOf(ValueOrThrow(ParseKeyAttributes(text)));
  });
  testing.def(
      "grant_in_headers", [](const Texts& texts) { return GrantOf(GrantInHeaders(ClaimFields(texts))); });
  py::class_<TestTenants>(testing, "TenantTokens")
      .def(py::init<size_t, size_t>(), "max_tenants"_a, "others"_a = TenantLabels::kOthers)
      .def("add", &TestTenants::Add, "tenant"_a, "tokens"_a, "configured"_a = false)
      .def("reject", &TestTenants::Reject, "tenant"_a, "reason"_a)
      .def("scrape_rejected", &TestTenants::ScrapeRejected)
      .def("table", &TestTenants::Table)
      .def("total", &TestTenants::Total)
      .def("scrape", &TestTenants::Scrape);
  py::class_<ClientRules>(testing, "ClientRules")
      .def(
          py::init([](const std::string& tenant_header, const std::vector<std::string>& trusted,
                      const std::vector<std::string>& aliases) {
            FixedOptions options;
            options.tenant_header = tenant_header;
            options.trusted_addresses = trusted;
            options.model_alias_classes = aliases;
            return ValueOrThrow(ClientRules::Make(options));
          }),
          "tenant_header"_a = "", "trusted_addresses"_a = std::vector<std::string>(),
          "model_alias_class"_a = std::vector<std::string>())
      .def_property_readonly("any", &ClientRules::any)
      .def("trusts", &ClientRules::TrustsAddress)
      .def("class_of_alias", [](const ClientRules& rules, const std::string& alias) {
        return ClassName(rules.ClassOfAlias(alias));
      });
  py::enum_<ClassGate>(testing, "ClassGate")
      .value("open", ClassGate::kOpen)
      .value("gated", ClassGate::kGated)
      .value("idle_only", ClassGate::kIdleOnly);
  testing.def("kv_usage", [](const py::dict& worker) { return KvUsage(WorkerRoomOf(worker)); });
  testing.def(
      "room_of",
      [](const py::dict& worker, ClassGate gate, double kv_ceiling, uint64_t workers, uint64_t prefills,
         bool higher_class_active, uint64_t max_requests) {
        return ClosedByName(RoomOf(
            WorkerRoomOf(worker), {.gate = gate, .kv_ceiling = kv_ceiling},
            {.workers = workers,
             .idle_only_prefills = prefills,
             .higher_class_active = higher_class_active,
             .max_requests = max_requests}));
      },
      "worker"_a, "gate"_a, "kv_ceiling"_a = kHighestCeiling, "workers"_a = 4, "idle_only_prefills"_a = 0,
      "higher_class_active"_a = true, "max_requests"_a = 0);
  py::class_<TestFairQueue>(testing, "FairQueue")
      .def(py::init<size_t, double>(), "max_waiters"_a, "quantum"_a)
      .def(
          "enqueue", &TestFairQueue::Enqueue, "number"_a, "tenant"_a, "cost"_a, "weight"_a = 1.0,
          "holders"_a = std::vector<std::pair<uint32_t, float>>(), "worker"_a = py::none())
      .def("next", &TestFairQueue::Next)
      .def("waiters_of", &TestFairQueue::WaitersOf)
      .def("newest_of", &TestFairQueue::NewestOf)
      .def("is_searched", &TestFairQueue::IsSearched)
      .def("requeue", &TestFairQueue::Requeue)
      .def("remove", &TestFairQueue::Remove)
      .def("settle", &TestFairQueue::Settle, "number"_a, "actual"_a)
      .def("__len__", [](const TestFairQueue& queue) { return queue.queue().waiters(); })
      .def_property_readonly("tenants", [](const TestFairQueue& queue) { return queue.queue().tenants(); })
      .def_property_readonly("reserved", [](const TestFairQueue& queue) { return queue.queue().reserved(); })
      .def_property_readonly(
          "virtual_time", [](const TestFairQueue& queue) { return queue.queue().virtual_time(); })
      .def("virtual_time_of", [](const TestFairQueue& queue, uint64_t tenant) {
        return queue.queue().VirtualTimeOf(tenant);
      });
}

}  // namespace vllm_router
