#include <pybind11/stl.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/load_for_test.h"
#include "bindings/raise_if_error.h"
#include "bindings/stats_dict.h"
#include "policy/merged_stats.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

namespace py = pybind11;
using namespace py::literals;

// A router with two stages, and its open tickets by number.
class StagedRouter {
 public:
  StagedRouter(
      const std::string& policy, const std::string& decode_policy,
      const std::vector<std::pair<std::string, std::optional<uint16_t>>>& prefill,
      const std::vector<std::string>& decode, std::tuple<uint32_t, uint32_t, uint32_t> ranks,
      uint32_t max_worker_requests, const std::vector<std::string>& worker_urls,
      std::pair<uint32_t, uint32_t> bypass) {
    RouterOptions options{
        .policy = {.policy = policy},
        .worker_urls = worker_urls,
        .max_worker_requests = max_worker_requests,
        .data_parallel_size = std::get<0>(ranks),
        .disaggregated = true,
        .decode_urls = decode,
        .prefill_data_parallel_size = std::get<1>(ranks),
        .decode_data_parallel_size = std::get<2>(ranks),
        .bypass = {.uncached_tokens = bypass.first, .queued_tokens = bypass.second}};
    options.decode_policy.policy = decode_policy;
    for (const auto& [url, port] : prefill) {
      options.prefill_urls.push_back({.url = url, .bootstrap_port = port});
    }
    StatusOr<std::shared_ptr<Router>> router = Router::Create(options);
    RaiseIfError(router.status());
    router_ = *std::move(router);
  }

  Router& router() const { return *router_; }

  // Number of the ticket, URL, reason, tokens to prefill.
  std::tuple<size_t, std::string, std::string_view, uint32_t> Select(
      const std::string& stage, const std::string& session, const std::string& prompt, bool transferred,
      const std::vector<std::string>& tried, const std::optional<std::string>& pinned) {
    const RoutingKey key = KeyOf(session, prompt);
    FleetView view = ViewOf(stage);
    for (const std::string& url : tried) view.Exclude(view.Find(url).value());
    StatusOr<Ticket> ticket =
        pinned ? router_->SelectPinned(key, view, view.Find(*pinned).value(), /*bounded=*/false, transferred)
               : router_->Select(key, view, transferred);
    RaiseIfError(ticket.status());
    tickets_.push_back(*std::move(ticket));
    const Ticket& made = tickets_.back();
    return {
        tickets_.size() - 1, made.worker().url.url, ReasonName(made.decision().reason),
        made.prefill_tokens()};
  }

  // Number of the ticket, URL, tokens to prefill, tokens saved. None: two stages.
  std::optional<std::tuple<size_t, std::string, uint32_t, uint32_t>> SelectBypass(
      const std::string& prompt, const std::vector<std::string>& tried) {
    FleetView view = ViewOf("decode");
    for (const std::string& url : tried) view.Exclude(view.Find(url).value());
    const RoutingKey key = KeyOf("", prompt);
    const std::optional<PdBypassChoice> found = router_->FindBypass(key, view);
    std::optional<Router::Bypass> bypass = router_->SelectBypass(key, view);
    if (!bypass) return std::nullopt;
    if (!found || found->uncached != bypass->uncached_tokens ||
        bypass->uncached_tokens != bypass->ticket.prefill_tokens())
      throw py::value_error("the decision and its dry run differ");
    tickets_.push_back(std::move(bypass->ticket));
    const Ticket& made = tickets_.back();
    return std::tuple(
        tickets_.size() - 1, made.worker().url.url, bypass->uncached_tokens, bypass->saved_tokens);
  }
  void LearnTransferred(const std::string& prompt, const std::string& url) {
    const auto fleet = router_->fleet();
    router_->LearnTransferred(KeyOf("", prompt), fleet->worker(fleet->Find(url).value()));
  }
  void End(size_t number, const std::string& end) {
    tickets_.at(number).Finish({.end = EndByName(end).value(), .status = 200});
  }
  void Forget(const std::string& url) {
    const auto fleet = router_->fleet();
    router_->pool().ForgetCache(fleet->worker(fleet->Find(url).value()).id);
  }

  std::string_view PolicyOfTicket(size_t number) const { return tickets_.at(number).policy().name(); }
  void Finish(size_t number) { tickets_.at(number).Finish({.end = Outcome::End::kFinished, .status = 200}); }

  std::vector<std::string> Rank(const std::string& stage, const std::string& session, size_t count) const {
    RoutingKey key = KeyOf(session, "");
    key.dry_run = true;
    const FleetView view = ViewOf(stage);
    std::vector<std::string> urls;
    for (const Decision& decision : router_->Rank(key, view, count))
      urls.push_back(view.worker(decision.position).url.url);
    return urls;
  }

  // Requests that are open, tokens that are outstanding.
  std::pair<int64_t, int64_t> LoadOf(const std::string& url) const {
    const auto fleet = router_->fleet();
    const WorkerLoad& load = fleet->load(fleet->Find(url).value());
    return {load.open_requests(), load.outstanding_tokens()};
  }

  std::vector<std::string> Eligible(const std::string& stage) const {
    const FleetView view = ViewOf(stage);
    std::vector<std::string> urls;
    for (const uint32_t position : view.eligible()) urls.push_back(view.worker(position).url.url);
    return urls;
  }

  py::dict Stats() const {
    const auto fleet = router_->fleet();
    py::dict stats;
    StatsDict writer(*fleet, stats);
    router_->pool().Report(*fleet, &writer);
    return stats;
  }

 private:
  RoutingKey KeyOf(const std::string& session, const std::string& prompt) const {
    RequestView request{.path = "/v1/completions"};
    if (!session.empty()) request.session_id = session;
    if (!prompt.empty()) request.prompt = prompt;
    return router_->MakeKey(request);
  }

  FleetView ViewOf(const std::string& stage) const {
    const auto fleet = router_->fleet();
    const Stage named = StageByName(stage).value();
    return named == Stage::kAll ? *fleet : *fleet->stages()->of(named);
  }

  std::shared_ptr<Router> router_;
  std::vector<Ticket> tickets_;
};

// A figure: kind, group, key, names, values.
using Figure =
    std::tuple<std::string, std::string, std::string, std::vector<std::string>, std::vector<uint64_t>>;

void WriteFigures(const std::vector<Figure>& figures, StatsWriter* writer) {
  for (const auto& [kind, group, key, names, values] : figures) {
    const Stat stat{.key = key, .metric = key};
    writer->Group(group);
    if (kind == "counter") {
      writer->Counter(stat, values.front());
    } else if (kind == "gauge") {
      writer->Gauge(stat, values.front());
    } else if (kind == "named") {
      std::vector<StatsWriter::Named> named;
      for (size_t i = 0; i < names.size(); ++i) named.push_back({names[i], values[i]});
      writer->NamedCounters(stat, named);
    } else if (kind == "worker") {
      writer->PerWorker(stat, values);
    } else {  // the last value is the sum
      const std::vector<int64_t> bounds(values.size() - 2, 1);
      writer->Histogram(stat, bounds, std::span(values).first(values.size() - 1), values.back());
    }
  }
}

class FigureList final : public StatsWriter {
 public:
  std::vector<Figure> figures;

  void Group(std::string_view name) override { group_ = name; }
  void Counter(const Stat& stat, uint64_t value) override { Add("counter", stat, {}, {value}); }
  void Gauge(const Stat& stat, uint64_t value) override { Add("gauge", stat, {}, {value}); }
  void NamedCounters(const Stat& stat, std::span<const Named> values) override {
    std::vector<std::string> names;
    std::vector<uint64_t> counts;
    for (const auto& [name, value] : values) {
      names.emplace_back(name);
      counts.push_back(value);
    }
    Add("named", stat, std::move(names), std::move(counts));
  }
  void PerWorker(const Stat& stat, std::span<const uint64_t> values) override {
    Add("worker", stat, {}, {values.begin(), values.end()});
  }
  void Histogram(
      const Stat& stat, std::span<const int64_t> /*bounds_nanos*/, std::span<const uint64_t> buckets,
      uint64_t sum_nanos) override {
    std::vector<uint64_t> values(buckets.begin(), buckets.end());
    values.push_back(sum_nanos);
    Add("histogram", stat, {}, std::move(values));
  }

 private:
  void Add(std::string kind, const Stat& stat, std::vector<std::string> names, std::vector<uint64_t> values) {
    figures.emplace_back(std::move(kind), group_, std::string(stat.key), std::move(names), std::move(values));
  }

  std::string group_;
};

std::vector<Figure> Merged(
    const std::vector<Figure>& first, const std::vector<Figure>& second, const std::vector<uint8_t>& is_its) {
  MergedStats merged;
  WriteFigures(first, &merged);
  merged.BeginSecond(is_its);
  WriteFigures(second, &merged);
  FigureList list;
  merged.WriteTo(&list);
  return std::move(list.figures);
}

// A decode worker: weight, open requests, queued tokens, expected output, tokens that it would have to compute.
using BypassRow = std::tuple<double, int64_t, int64_t, int64_t, uint32_t>;

// The position and the tokens to compute; None: two stages.
std::optional<std::pair<uint32_t, uint32_t>> ChooseBypassOf(
    const std::vector<BypassRow>& rows, uint32_t uncached_tokens, uint32_t queued_tokens, uint64_t seed) {
  WorkerRegistry registry(nullptr);
  std::vector<uint32_t> uncached;
  for (const auto& [weight, requests, queued, expected, own] : rows) {
    RaiseIfError(registry.Add("http://d" + std::to_string(uncached.size()) + ":80", weight));
    uncached.push_back(own);
  }
  const std::shared_ptr<const FleetView> fleet = registry.snapshot().Load();
  for (uint32_t position = 0; position < rows.size(); ++position) {
    const auto& [weight, requests, queued, expected, own] = rows[position];
    LoadForTest::Set(
        fleet->members()[position].worker->load,
        {.requests = requests, .queued_prefill = queued, .expected_output = expected});
  }
  Random random(seed);
  const std::optional<PdBypassChoice> choice = ChooseBypass(
      {.uncached_tokens = uncached_tokens, .queued_tokens = queued_tokens}, *fleet, uncached, random);
  if (!choice) return std::nullopt;
  return std::pair(choice->position, choice->uncached);
}

}  // namespace

void BindTestingStages(py::module_& testing) {
  testing.def("merged_stats", &Merged, "first"_a, "second"_a, "is_its"_a);

  testing.def(
      "choose_bypass", &ChooseBypassOf, "rows"_a, "uncached_tokens"_a, "queued_tokens"_a, "seed"_a = 0);
  py::class_<StagedRouter>(testing, "StagedRouter")
      .def(
          py::init<
              const std::string&, const std::string&,
              const std::vector<std::pair<std::string, std::optional<uint16_t>>>&,
              const std::vector<std::string>&, std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t,
              const std::vector<std::string>&, std::pair<uint32_t, uint32_t>>(),
          "policy"_a, "decode_policy"_a = "",
          "prefill"_a = std::vector<std::pair<std::string, std::optional<uint16_t>>>(),
          "decode"_a = std::vector<std::string>(), "ranks"_a = std::tuple(1, 0, 0),
          "max_worker_requests"_a = 0, "worker_urls"_a = std::vector<std::string>(),
          "bypass"_a = std::pair(0, 4096))
      .def(
          "select", &StagedRouter::Select, "stage"_a, "session"_a = "", "prompt"_a = "",
          "transferred"_a = false, "tried"_a = std::vector<std::string>(), "pinned"_a = py::none())
      .def("policy_of_ticket", &StagedRouter::PolicyOfTicket, "number"_a)
      .def("finish", &StagedRouter::Finish, "number"_a)
      .def("end", &StagedRouter::End, "number"_a, "how"_a)
      .def("select_bypass", &StagedRouter::SelectBypass, "prompt"_a, "tried"_a = std::vector<std::string>())
      .def("learn_transferred", &StagedRouter::LearnTransferred, "prompt"_a, "url"_a)
      .def("forget", &StagedRouter::Forget, "url"_a)
      .def("rank", &StagedRouter::Rank, "stage"_a, "session"_a, "count"_a)
      .def("load_of", &StagedRouter::LoadOf, "url"_a)
      .def("eligible", &StagedRouter::Eligible, "stage"_a)
      .def("stats", &StagedRouter::Stats)
      .def_property_readonly(
          "policies",
          [](const StagedRouter& self) {
            return std::pair(
                self.router().policy_of(Stage::kPrefill).name(),
                self.router().policy_of(Stage::kDecode).name());
          })
      .def_property_readonly(
          "needs", [](const StagedRouter& self) { return static_cast<uint32_t>(self.router().needs()); })
      .def_property_readonly(
          "free_places",
          [](const StagedRouter& self) { return self.router().FreePlaces(*self.router().fleet()); })
      .def_property_readonly(
          "no_pair_message", [](const StagedRouter& self) { return NoPairMessage(*self.router().fleet()); })
      .def(
          "add",
          [](const StagedRouter& self, const std::string& url, const std::string& worker_type) {
            StatusOr<WorkerDeclaration> worker = DeclareWorker(url);
            RaiseIfError(worker.status());
            worker->role.stage = StageByName(worker_type).value();
            RaiseIfError(self.router().AddWorker(*worker));
          },
          "url"_a, "worker_type"_a)
      .def(
          "remove", [](const StagedRouter& self,
                       const std::string& url) { RaiseIfError(self.router().RemoveWorker(url)); })
      .def("set_healthy", [](const StagedRouter& self, const std::string& url, bool healthy) {
        RaiseIfError(self.router().SetHealthy(url, healthy));
      });
}

}  // namespace vllm_router
