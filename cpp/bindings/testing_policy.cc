#include <pybind11/stl.h>

#include <algorithm>
#include <map>
#include <thread>

#include "base/clock.h"
#include "bindings/bindings.h"
#include "bindings/load_for_test.h"
#include "bindings/option_values.h"
#include "bindings/raise_if_error.h"
#include "bindings/stats_dict.h"
#include "policy/active_blocks.h"
#include "policy/auto_cost.h"
#include "policy/kv_logit.h"
#include "policy/kv_overlap.h"
#include "policy/load_order.h"
#include "policy/lost_blocks.h"
#include "policy/moving_mean.h"
#include "policy/policy_registry.h"
#include "policy/round_robin.h"
#include "policy/success_share.h"
#include "policy/worker_history.h"
#include "proxy/admin/stats_table.h"
#include "worker/worker_registry.h"

namespace vllm_router {

namespace {

namespace py = pybind11;
using namespace py::literals;

// Factors in thousandths, as the core has them.
PolicyOptions OptionsFrom(const std::string& policy, const py::dict& words) {
  PolicyOptions options{.policy = policy};
  for (const auto& [key, value] : words) {
    const auto name = key.cast<std::string>();
    if (name == "worker_block_sizes") {  // here also of blocks that are not of 16 tokens
      options.worker_block_sizes = value.cast<bool>();
      continue;
    }
    const OptionSpec<PolicyOptions>* const spec = FindOption(PolicyOptionTable(), name);
    if (spec == nullptr) throw py::type_error("no option " + name);
    const OptionValue given = spec->member.scale == 1
                                  ? OptionValueOf(spec->member.kind, value)
                                  : OptionValue(value.cast<double>() / spec->member.scale);
    RaiseIfError(SetOption(*spec, given, &options));
  }
  return options;
}

// A policy over a fleet whose loads a test sets by hand.
class PolicyHarness {
 public:
  PolicyHarness(const std::string& policy, const py::kwargs& options)
      : pool_(ValueOrRaise(MakePolicy(OptionsFrom(policy, options)))) {}

  Pool& pool() { return pool_; }
  Policy& policy() { return pool_.policy(); }
  WorkerRegistry& registry() { return pool_.registry(); }
  std::shared_ptr<const FleetView> fleet() const { return pool_.fleet(); }

  std::vector<Decision>& decisions() { return decisions_; }
  // What its KV events fill; none before the first.
  std::optional<WorkerSlot>& cache(WorkerId worker) { return caches_[worker]; }

  WorkerLoad& load(const std::string& url) const {
    const auto fleet = this->fleet();
    const std::optional<uint32_t> position = fleet->Find(url);
    if (!position) throw py::value_error("no worker " + url);
    return fleet->members()[*position].worker->load;
  }

 private:
  Pool pool_;
  std::map<WorkerId, std::optional<WorkerSlot>> caches_;
  std::vector<Decision> decisions_;
};

// All requests come at one time, so that decisions do not depend on the clock.
constexpr int64_t kNow = 1'000'000'000;

RoutingKey KeyFrom(const std::optional<std::string>& session, const std::optional<std::string>& body) {
  RoutingKey key;
  key.now_ns = kNow;
  if (session) {
    key.hash_key = *session;
    key.hash_key_source = RoutingKey::HashKeySource::kSession;
  } else if (body) {
    key.hash_key = *body;
    key.hash_key_source = RoutingKey::HashKeySource::kBody;
  }
  return key;
}

using SharedRanges = std::vector<std::pair<uint32_t, uint32_t>>;

SharedHits HitsOf(const SharedRanges& given) {
  std::vector<BlockRange> ranges;
  for (const auto& [begin, end] : given) ranges.push_back({begin, end});
  return SharedHits(std::move(ranges));
}

// A prompt of bytes or of ids, whose first `scope` units name a model.
RoutingKey KeyFromPrompt(const py::object& prompt, bool framed, size_t scope) {
  RoutingKey key;
  key.now_ns = kNow;
  if (prompt.is_none()) return key;
  key.prompt.framed = framed;
  key.prompt.scope = scope;
  if (py::isinstance<py::bytes>(prompt)) {
    key.prompt.kind = Prompt::Kind::kText;
    key.prompt.own_text = prompt.cast<std::string>();
  } else {
    key.prompt.kind = Prompt::Kind::kTokens;
    key.prompt.own_tokens = prompt.cast<std::vector<uint32_t>>();
  }
  return key;
}

using Answer = std::optional<std::pair<uint32_t, std::string_view>>;  // position and reason

Answer AnswerFrom(const std::optional<Decision>& decision, const FleetView& fleet) {
  if (!decision) return std::nullopt;
  if (decision->worker != fleet.worker(decision->position).id)
    throw py::value_error("worker and position differ");
  if (decision->matched > decision->total) throw py::value_error("matched is greater than total");
  return std::pair(decision->position, ReasonName(decision->reason));
}

}  // namespace

void BindTestingPolicy(py::module_& testing) {
  testing.def("policy_options", [] { return OptionRows(PolicyOptionTable()); });
  testing.def("policy_names", &PolicyNames);
  testing.def("fallback_policy_names", &FallbackPolicyNames);
  testing.def("canonical_policy_name", [](const std::string& name) {
    return ValueOrRaise(CanonicalPolicyName(name));
  });
  testing.def("reason_names", [] {
    std::vector<std::string_view> names;
    for (int reason = 0; reason < kReasonCount; ++reason)
      names.push_back(ReasonName(static_cast<Reason>(reason)));
    return names;
  });
  testing.def("end_by_name", [](const std::string& name) -> std::optional<std::string_view> {
    const std::optional<Outcome::End> end = EndByName(name);
    return end ? std::optional(EndName(*end)) : std::nullopt;
  });
  testing.def("match_unit_names", [] {
    return std::vector{
        MatchUnitName(MatchUnit::kNone), MatchUnitName(MatchUnit::kBytes), MatchUnitName(MatchUnit::kTokens),
        MatchUnitName(MatchUnit::kBlocks)};
  });
  testing.def(
      "smooth_schedule", [](const std::vector<uint32_t>& weights) { return SmoothSchedule(weights); });

  testing.def(
      "auto_cost",
      [](const std::string& objective, const py::kwargs& terms) {
        AutoTerms cost;
        AutoMeans means;
        const std::map<std::string, double*> fields = {
            {"queued", &cost.queued},
            {"waiting", &cost.waiting},
            {"uncached", &cost.uncached},
            {"requests", &cost.requests},
            {"context", &cost.context},
            {"sent", &cost.sent},
            {"slow", &cost.slow},
            {"weight", &cost.weight},
            {"prompt", &means.prompt},
            {"least_uncached", &means.least_uncached},
            {"sharers", &means.sharers},
            {"mean_uncached", &means.mean_uncached},
            {"mean_output", &means.mean_output},
            {"mean_prompt", &means.mean_prompt},
            {"mean_requests", &means.mean_requests},
            {"mean_context", &means.mean_context},
            {"rate", &means.rate},
            {"lost", &means.lost}};
        for (const auto& [name, value] : terms) *fields.at(name.cast<std::string>()) = value.cast<double>();
        const PolicyOptions options = OptionsFrom("auto", py::dict("auto_objective"_a = objective));
        return AutoCost(cost, AutoPrices(means, options.auto_objective));
      },
      py::arg("objective") = "balanced");

  testing.def("logit_cost", [](const std::string& prefill, const py::kwargs& given) {
    LogitTerms terms;
    LogitWeights weights;
    weights.prefill = prefill == "prompt" ? LogitPrefill::kPrompt : LogitPrefill::kUncached;
    const std::map<std::string, double*> fields = {
        {"queued", &terms.queued},
        {"prompt", &terms.prompt},
        {"gpu", &terms.gpu},
        {"host", &terms.host},
        {"disk", &terms.disk},
        {"shared", &terms.shared},
        {"decode", &terms.decode},
        {"block", &terms.block},
        {"weight", &terms.weight},
        {"overlap_weight", &weights.overlap},
        {"host_credit", &weights.host_credit},
        {"disk_credit", &weights.disk_credit},
        {"shared_credit", &weights.shared_credit}};
    for (const auto& [name, value] : given) *fields.at(name.cast<std::string>()) = value.cast<double>();
    return LogitCost(terms, weights);
  });
  testing.def("softmax_of_costs", [](const std::vector<double>& costs, double temperature) {
    std::vector<double> weights(costs.size());
    SoftmaxOfCosts(costs, temperature, weights);
    return weights;
  });
  testing.def(
      "overlap_score", [](double credit, double most_tokens, double load, double most_load, double health) {
        return OverlapScore(
            {.credit = credit,
             .most_tokens = most_tokens,
             .load = load,
             .most_load = most_load,
             .health = health},
            {});
      });

  py::class_<ActiveBlocks>(testing, "ActiveBlocks")
      .def(py::init<>())
      .def(
          "open",
          [](ActiveBlocks& self, uint16_t slot, uint32_t worker, const std::vector<uint64_t>& chain) {
            return self.Open({WorkerSlot{slot}, WorkerId{worker}}, chain);
          })
      .def(
          "close",
          [](ActiveBlocks& self, uint16_t slot, uint32_t worker, uint64_t request) {
            self.Close({WorkerSlot{slot}, WorkerId{worker}}, request);
          })
      .def(
          "count",
          [](const ActiveBlocks& self, uint16_t slot, uint32_t worker) {
            return self.Count({WorkerSlot{slot}, WorkerId{worker}});
          })
      .def(
          "count_leading",
          [](const ActiveBlocks& self, uint16_t slot, uint32_t worker, const std::vector<uint64_t>& chain) {
            return self.CountLeading({WorkerSlot{slot}, WorkerId{worker}}, chain);
          });

  py::class_<SuccessShare>(testing, "SuccessShare")
      .def(py::init<>())
      .def("record", &SuccessShare::Record)
      .def("clear", &SuccessShare::Clear)
      .def_property_readonly("value", &SuccessShare::value);

  py::class_<LostBlocks>(testing, "LostBlocks")
      .def(py::init<>())
      .def(
          "learn", [](LostBlocks& self, const std::vector<uint64_t>& blocks,
                      size_t held) { self.Learn(blocks, held); })
      .def_property_readonly("share", &LostBlocks::share);
  py::class_<WorkerHistory>(testing, "WorkerHistory")
      .def(py::init<>())
      .def(
          "read",
          [](const WorkerHistory& self, uint32_t worker, uint16_t slot) {
            const WorkerHistory::Reading read = self.Read({WorkerId{worker}, WorkerSlot{slot}});
            return std::tuple(read.sent, read.speed.pace, read.speed.known);
          })
      .def(
          "add",
          [](WorkerHistory& self, uint32_t worker, uint16_t slot, double work) {
            self.Add({WorkerId{worker}, WorkerSlot{slot}}, work);
          })
      .def(
          "learn_pace",
          [](WorkerHistory& self, uint32_t worker, uint16_t slot, double pace) {
            self.LearnPace({WorkerId{worker}, WorkerSlot{slot}}, pace);
          })
      .def("fade", [](WorkerHistory& self, const std::vector<std::pair<uint32_t, uint16_t>>& workers) {
        std::vector<WorkerHistory::Place> places;
        std::vector<uint32_t> positions;
        for (const auto& [worker, slot] : workers) {
          positions.push_back(static_cast<uint32_t>(places.size()));
          places.push_back({WorkerId{worker}, WorkerSlot{slot}});
        }
        self.Fade(places, positions);
      });
  py::class_<MovingMean>(testing, "MovingMean")
      .def(py::init<>())
      .def("learn", &MovingMean::Learn)
      .def_property_readonly("value", &MovingMean::value);
  testing.attr("MOVING_MEAN_MEMORY") = MovingMean::kMemory;

  py::class_<PolicyHarness>(testing, "PolicyHarness")
      .def(py::init<const std::string&, const py::kwargs&>())
      .def_property_readonly("name", [](PolicyHarness& self) { return self.policy().name(); })
      .def_property_readonly(
          "needs", [](PolicyHarness& self) { return static_cast<uint32_t>(self.policy().Needs()); })
      .def(
          "add",
          [](PolicyHarness& self, const std::string& url, double weight) {
            RaiseIfError(self.registry().Add(url, weight));
          },
          py::arg("url"), py::arg("weight") = 1.0)
      .def(
          "add_all",
          [](PolicyHarness& self, const std::vector<std::pair<std::string, double>>& workers) {
            std::vector<WorkerDeclaration> declared;
            for (const auto& [url, weight] : workers) {
              declared.push_back(ValueOrRaise(DeclareWorker(url)));
              declared.back().weight = weight;
            }
            RaiseIfError(self.registry().AddAll(std::move(declared)));
          })
      .def(
          "remove",
          [](PolicyHarness& self, const std::string& url) { RaiseIfError(self.registry().Remove(url)); })
      .def(
          "set_healthy", [](PolicyHarness& self, const std::string& url,
                            bool healthy) { RaiseIfError(self.registry().SetHealthy(url, healthy)); })
      .def(
          "set_draining", [](PolicyHarness& self, const std::string& url,
                             bool draining) { RaiseIfError(self.registry().SetDraining(url, draining)); })
      .def(
          "set_load",
          [](PolicyHarness& self, const std::string& url, int64_t requests, int64_t prefill, int64_t output,
             int64_t context, int64_t waiting) {
            LoadForTest::Set(self.load(url), {requests, waiting, prefill, output, context});
          },
          py::arg("url"), py::arg("requests"), py::arg("prefill") = 0, py::arg("output") = 0,
          py::arg("context") = 0, py::arg("waiting") = 0)
      // Of other routers, as a poll of the worker tells them.
      .def(
          "set_polled", [](PolicyHarness& self, const std::string& url, int64_t requests,
                           int64_t waiting) { self.load(url).SetPolled(requests, waiting); })
      .def_property_readonly(
          "urls",
          [](PolicyHarness& self) {
            std::vector<std::string> urls;
            for (const FleetView::Member& member : self.fleet()->members())
              urls.push_back(member.worker->url.url);
            return urls;
          })
      .def(
          "choose",
          [](PolicyHarness& self, const std::optional<std::string>& session,
             const std::optional<std::string>& body, const std::optional<std::string>& digest,
             const std::vector<uint32_t>& tried) {
            const auto fleet = self.fleet();
            RoutingKey key = KeyFrom(session, body);
            if (digest) std::copy_n(digest->begin(), 32, key.prefix_digest.emplace().begin());
            if (tried.empty()) return AnswerFrom(self.policy().Choose(key, *fleet), *fleet);
            const FleetView smaller = fleet->Without(tried);
            return AnswerFrom(self.policy().Choose(key, smaller), smaller);
          },
          py::kw_only(), py::arg("session") = py::none(), py::arg("body") = py::none(),
          py::arg("digest") = py::none(), py::arg("tried") = std::vector<uint32_t>())
      .def(
          "set_cache_size",
          [](PolicyHarness& self, const std::string& url, uint64_t bytes, uint32_t block_tokens) {
            const auto fleet = self.fleet();
            self.pool().SetCacheSize(
                fleet->worker(fleet->Find(url).value()).id, {.bytes = bytes, .block_tokens = block_tokens});
          },
          py::arg("url"), py::arg("bytes") = 0, py::arg("block_tokens") = 0)
      .def(
          "finish_session",
          [](PolicyHarness& self, const std::string& key) { return self.policy().FinishSession(key); })
      .def_property_readonly("sessions", [](PolicyHarness& self) { return self.policy().sessions(); })
      // By the names of a prompt's blocks, all of them usable: position, reason, matched, total.
      .def(
          "choose_blocks",
          [](PolicyHarness& self, const std::vector<uint64_t>& blocks, const std::vector<uint32_t>& tried,
             uint32_t prompt_tokens, bool has_blocks, const std::optional<std::string>& digest,
             const std::optional<SharedRanges>& shared, const std::map<std::string, double>& cost,
             const std::optional<std::vector<uint32_t>>& residents, double now, bool dry_run) {
            const auto fleet = self.fleet();
            RoutingKey key;
            key.now_ns = static_cast<int64_t>(now * 1e9);
            key.dry_run = dry_run;
            if (digest) std::copy_n(digest->begin(), 32, key.prefix_digest.emplace().begin());
            key.prompt_tokens = prompt_tokens;
            key.blocks = blocks;
            key.has_blocks = has_blocks;
            key.blocks_are_tokens = key.blocks_are_reported = true;
            key.usable_blocks = blocks.size();
            if (shared) key.shared_hits = HitsOf(*shared);
            if (!cost.empty()) key.cost_override.emplace();
            for (const auto& [name, value] : cost) RaiseIfError(key.cost_override->Set(name, value));
            FleetView smaller = fleet->Without(tried);
            if (residents) {  // positions of the workers that have the adapter
              FleetView::Residents marks(fleet->members().size());
              for (const uint32_t position : *residents) marks.at(position) = 1;
              smaller.set_residents(std::make_shared<const FleetView::Residents>(std::move(marks)));
            }
            const auto decision = self.policy().Choose(key, smaller);
            std::optional<std::tuple<uint32_t, std::string_view, uint64_t, uint64_t>> answer;
            if (decision) {
              const auto [position, reason] = *AnswerFrom(decision, smaller);
              answer.emplace(position, reason, decision->matched, decision->total);
              self.decisions().push_back(*decision);
            }
            return answer;
          },
          py::arg("blocks"), py::arg("tried") = std::vector<uint32_t>(), py::arg("prompt_tokens") = 1,
          py::arg("has_blocks") = true, py::arg("digest") = py::none(), py::arg("shared") = py::none(),
          py::arg("override") = std::map<std::string, double>(), py::arg("residents") = py::none(),
          py::arg("now") = 1.0, py::arg("dry_run") = false)
      // The number of the decisions of choose_blocks(), and what a dry run's explanation says of each eligible worker.
      .def_property_readonly("asked", [](PolicyHarness& self) { return self.decisions().size(); })
      .def(
          "costs",
          [](PolicyHarness& self, const std::vector<uint64_t>& blocks, uint32_t prompt_tokens, double now) {
            const auto fleet = self.fleet();
            RoutingKey key;
            key.prompt_tokens = prompt_tokens;
            key.blocks = blocks;
            key.has_blocks = true;
            key.usable_blocks = blocks.size();
            key.now_ns = static_cast<int64_t>(now * 1e9);
            key.dry_run = true;
            key.explanation = std::make_shared<Explanation>();
            key.explanation->candidates.resize(fleet->eligible().size());
            (void)self.policy().Choose(key, *fleet);
            std::vector<std::optional<double>> costs;
            for (const Explanation::Candidate& candidate : key.explanation->candidates)
              costs.push_back(candidate.cost);
            return costs;
          },
          py::arg("blocks"), py::kw_only(), py::arg("prompt_tokens"), py::arg("now") = 1.0)
      // The request of the decision with this number among those of choose_blocks(): its first token, and its end,
      // at these seconds of the same clock; 0: there was none.
      .def(
          "serve",
          [](PolicyHarness& self, size_t decision, double first_token, double now, const std::string& end,
             int status, std::optional<uint64_t> output_tokens, std::optional<uint64_t> cached_tokens) {
            const Decision& served = self.decisions().at(decision);
            const auto first_token_ns = static_cast<int64_t>(first_token * 1e9);
            if (first_token > 0) self.policy().ObserveFirstToken(served, first_token_ns);
            if (now == 0) return;
            self.policy().Observe(
                served, {.end = EndByName(end).value(),
                         .status = status,
                         .cached_tokens = cached_tokens,
                         .output_tokens = output_tokens,
                         .first_token_ns = first_token_ns,
                         .now_ns = static_cast<int64_t>(now * 1e9)});
          },
          py::arg("decision"), py::kw_only(), py::arg("first_token") = 0.0, py::arg("now") = 0.0,
          py::arg("end") = "finished", py::arg("status") = 200, py::arg("output_tokens") = py::none(),
          py::arg("cached_tokens") = py::none())
      // Blocks of the shared pool beyond those that its worker has on the GPU, by the decision's number.
      .def(
          "shared_beyond",
          [](PolicyHarness& self, size_t decision) { return self.decisions().at(decision).shared_beyond; })
      // The worker's KV events told that it holds the blocks on the tier, and everything else that it holds.
      .def(
          "report_blocks",
          [](PolicyHarness& self, const std::string& url, const std::vector<uint64_t>& blocks, int tier) {
            ReportedBlocks& reported = self.pool().index()->reported();
            const auto fleet = self.fleet();
            const WorkerId worker = fleet->worker(fleet->Find(url).value()).id;
            std::optional<WorkerSlot>& cache = self.cache(worker);
            if (!cache) cache = ValueOrRaise(reported.AddCache(worker));
            reported.SetTrust(worker, KvTrust::kExact);
            reported.index().Insert(
                *cache, static_cast<Tier>(tier), BlockRef(), blocks, static_cast<BlockRef*>(nullptr));
          })
      // The worker told by an event that it holds so many tokens of the prefix. The policy keeps a table of
      // these: kv_index_max_entries is among its options.
      .def(
          "put_prefix",
          [](PolicyHarness& self, const std::string& url, const std::string& digest, uint32_t tokens,
             bool on_gpu) {
            const auto fleet = self.fleet();
            Digest256 prefix;
            std::copy_n(digest.begin(), prefix.size(), prefix.begin());
            return self.pool().index()->prefixes()->Put(
                prefix, fleet->worker(fleet->Find(url).value()).id, tokens, on_gpu, SteadyClock().NowNanos());
          })
      // Tells the policy that a request has ended on the worker at this position, with so many tokens of
      // output.
      .def(
          "finish_blocks",
          [](PolicyHarness& self, uint32_t position, uint64_t output_tokens) {
            const Decision decision{.position = position, .worker = self.fleet()->worker(position).id};
            self.policy().Observe(decision, {.end = Outcome::End::kFinished, .output_tokens = output_tokens});
          })
      // The request of the decision with this number among those of choose_blocks() has ended so; the worker
      // keeps what it was sent.
      .def(
          "end_request",
          [](PolicyHarness& self, size_t decision, const std::string& end, int status) {
            Decision ended = self.decisions().at(decision);
            ended.claim = 0;
            self.policy().Observe(ended, {.end = EndByName(end).value(), .status = status});
          })
      // The same of bytes, or of a list of ids, or of None.
      .def(
          "choose_prompt",
          [](PolicyHarness& self, const py::object& prompt, bool framed, size_t scope,
             const std::vector<uint32_t>& tried) {
            const auto fleet = self.fleet();
            const RoutingKey key = KeyFromPrompt(prompt, framed, scope);
            const FleetView smaller = fleet->Without(tried);
            const auto decision = self.policy().Choose(key, smaller);
            std::optional<std::tuple<uint32_t, std::string_view, uint64_t, uint64_t>> answer;
            if (decision) {
              const auto [position, reason] = *AnswerFrom(decision, smaller);
              answer.emplace(position, reason, decision->matched, decision->total);
            }
            return answer;
          },
          py::arg("prompt"), py::kw_only(), py::arg("framed") = false, py::arg("scope") = 0,
          py::arg("tried") = std::vector<uint32_t>())
      // As Router.stats() has them.
      .def(
          "stats",
          [](PolicyHarness& self) {
            const auto fleet = self.fleet();
            py::dict stats;
            StatsDict writer(*fleet, stats);
            self.pool().Report(*fleet, &writer);
            return stats;
          })
      // Bytes that each worker was sent, by position, under cache_aware.
      .def(
          "cache_sizes",
          [](PolicyHarness& self) {
            const auto fleet = self.fleet();
            StatsTable stats("cache_routing");
            self.pool().Report(*fleet, &stats);
            std::vector<uint64_t> sizes;
            for (size_t i = 0; i < fleet->members().size(); ++i)
              sizes.push_back(stats.OfWorker("workers", i));
            return sizes;
          })
      // As if a request with this decision had ended; `unit` bytes or tokens.
      .def(
          "observe",
          [](PolicyHarness& self, uint32_t position, uint64_t matched, const std::string& unit,
             std::optional<uint64_t> cached_tokens, uint8_t endpoint) {
            const auto fleet = self.fleet();
            self.policy().Observe(
                {.position = position,
                 .worker = fleet->worker(position).id,
                 .reason = Reason::kPrefixHit,
                 .unit = unit == "bytes" ? MatchUnit::kBytes : MatchUnit::kTokens,
                 .endpoint = endpoint,
                 .matched = matched,
                 .total = matched},
                {.status = 200, .cached_tokens = cached_tokens});
          },
          py::arg("position"), py::arg("matched"), py::arg("unit"), py::arg("cached_tokens"),
          py::arg("endpoint") = 0)
      .def(
          "block_count",
          [](PolicyHarness& self) { return self.pool().index()->tracker().stats().index.blocks; })
      // The same without the plan that goes with the view, as for a fleet without a plan.
      .def(
          "choose_unplanned",
          [](PolicyHarness& self, const std::optional<std::string>& session) {
            FleetView fleet = *self.fleet();
            fleet.set_plan(nullptr);
            return AnswerFrom(self.policy().Choose(KeyFrom(session, std::nullopt), fleet), fleet);
          },
          py::arg("session"))
      // Positions of many choices, one per session; for an empty list of sessions, `count` choices
      // without a key.
      .def(
          "choose_many",
          [](PolicyHarness& self, const std::vector<std::string>& sessions, size_t count) {
            const auto fleet = self.fleet();
            std::vector<uint32_t> positions;
            for (size_t i = 0; i < (sessions.empty() ? count : sessions.size()); ++i) {
              const RoutingKey key = sessions.empty() ? RoutingKey() : KeyFrom(sessions[i], std::nullopt);
              positions.push_back(self.policy().Choose(key, *fleet).value().position);
            }
            return positions;
          },
          py::arg("sessions") = std::vector<std::string>(), py::arg("count") = 0)
      // How often each position was chosen by `threads` threads with `each` choices, all at once.
      .def(
          "choose_in_threads",
          [](PolicyHarness& self, size_t threads, size_t each) {
            const auto fleet = self.fleet();
            std::vector<std::vector<uint64_t>> counts(
                threads, std::vector<uint64_t>(fleet->members().size()));
            std::vector<std::thread> running;
            for (size_t thread = 0; thread < threads; ++thread) {
              running.emplace_back([&, thread] {
                for (size_t i = 0; i < each; ++i)
                  ++counts[thread][self.policy().Choose(RoutingKey(), *fleet)->position];
              });
            }
            for (std::thread& thread : running) thread.join();
            for (size_t thread = 1; thread < threads; ++thread) {
              for (size_t i = 0; i < counts[0].size(); ++i) counts[0][i] += counts[thread][i];
            }
            return counts[0];
          },
          py::call_guard<py::gil_scoped_release>())
      .def(
          "compare_load",
          [](PolicyHarness& self, uint32_t a, uint32_t b, const std::string& metric) {
            const auto fleet = self.fleet();
            return CompareLoad(
                fleet->worker(a), fleet->worker(b),
                OptionsFrom("least_load", py::dict("least_load_metric"_a = metric)).least_load_metric);
          },
          py::arg("a"), py::arg("b"), py::arg("metric") = "requests")
      .def("caps", [](PolicyHarness& self, uint32_t factor_thousandths) {
        const auto fleet = self.fleet();
        const LoadCap room(*fleet, factor_thousandths);
        std::vector<int64_t> caps;
        for (const FleetView::Member& member : fleet->members()) caps.push_back(room.Cap(*member.worker));
        return caps;
      });
}

}  // namespace vllm_router
