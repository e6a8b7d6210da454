#include "conditions/conditions.h"

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

bool IsMost(uint64_t part, uint64_t all, uint64_t least) { return part >= least && 2 * part >= all; }

// "12 of 40"
std::string Share(uint64_t part, uint64_t all) { return Concat(part, " of ", all); }

std::string Counted(size_t number, std::string_view one, std::string_view many) {
  return number == 1 ? Concat("1 ", one) : Concat(number, " ", many);
}

std::string TimeText(int64_t nanos) {
  const int64_t ms = (nanos + kNanosPerMs / 2) / kNanosPerMs;
  if (ms < 1'000) return Concat(ms, " ms");
  return Concat(ms / 1'000, ".", ms / 100 % 10, " s");
}

// "164 of 164 responses of the last minute were 401"
std::string Refused(const Outcomes& outcomes) {
  const uint64_t unknown = outcomes.of(ResponseCode::k401);
  const uint64_t forbidden = outcomes.of(ResponseCode::k403);
  return Concat(
      Share(unknown + forbidden, outcomes.attempts() - outcomes.of(ResponseCode::kNone)),
      " responses of the last minute were ",
      forbidden == 0 ? "401"
      : unknown == 0 ? "403"
                     : "401 or 403",
      ", and clients got them. ");
}

class Finder {
 public:
  explicit Finder(std::span<const WorkerFacts> workers) : workers_(workers) {}

  std::vector<Condition> Find() {
    FindStates();
    FindRefusals();
    FindFailures();
    FindSlow();
    std::stable_sort(found_.begin(), found_.end(), [](const Condition& one, const Condition& other) {
      return std::pair(!one.is_page, one.kind) < std::pair(!other.is_page, other.kind);
    });
    return std::move(found_);
  }

 private:
  static bool Serves(const WorkerFacts& worker) {
    return worker.is_healthy && !worker.is_ejected && !worker.is_in_doubt && !worker.is_draining;
  }

  // What the fleet knows of them already.
  void FindStates() {
    const auto serving = static_cast<size_t>(std::count_if(workers_.begin(), workers_.end(), &Serves));
    if (serving == 0) {
      found_.push_back(
          {.kind = ConditionKind::kNoWorkerServes,
           .text = workers_.empty() ? "The router has no workers: every request gets 503."
                                    : "No worker serves: requests get 503.",
           .is_page = true});
    }
    const std::string others =
        serving == 0
            ? std::string()
            : Concat(" ", Counted(serving, "other worker takes", "other workers take"), " its requests.");
    for (const WorkerFacts& worker : workers_) {
      if (!worker.is_healthy) {
        Add(ConditionKind::kWorkerIsDown, worker, Concat(worker.url, " fails its health checks.", others));
      } else if (worker.is_in_doubt) {
        Add(ConditionKind::kWorkerHangs, worker,
            Concat(worker.url, " accepts requests and does not serve them.", others));
      } else if (worker.is_ejected) {
        const Outcomes all = SumOf(worker.models);
        Add(ConditionKind::kWorkerEjected, worker,
            Concat(
                worker.url, " was ejected for its failures: ", Share(all.failed(), all.attempts()),
                " attempts of the last minute failed.", others));
      }
    }
  }

  void FindRefusals() {
    size_t responding = 0;
    std::vector<Condition> refusals;
    Outcomes of_all;
    for (const WorkerFacts& worker : workers_) {
      const Outcomes all = SumOf(worker.models);
      const uint64_t responses = all.attempts() - all.of(ResponseCode::kNone);
      if (responses == 0) continue;
      ++responding;
      const uint64_t keys = all.of(ResponseCode::k401) + all.of(ResponseCode::k403);
      of_all.Add(all);
      if (IsMost(keys, responses, condition_limits::kLeastRejected)) {
        refusals.push_back(
            {.kind = ConditionKind::kWorkerRejects,
             .worker = worker.url,
             .text = Concat(
                 worker.url, " rejects requests: ", Refused(all),
                 "It wants another key than the client's, or that of --api-key, which it is sent."),
             .is_page = true});
      }
      const uint64_t missing = all.of(ResponseCode::k404);
      if (IsMost(missing, responses, condition_limits::kLeastNotFound)) {
        Add(ConditionKind::kWorkerNotFound, worker,
            Concat(
                worker.url, " does not find what is requested: ", Share(missing, responses),
                " responses of the last minute were 404."));
      }
    }
    // One cause has one sentence.
    if (refusals.size() > 1 && refusals.size() == responding) {
      found_.push_back(
          {.kind = ConditionKind::kAllReject,
           .text = Concat(
               "All ", responding, responding == workers_.size() ? " workers" : " workers that respond",
               " reject requests: ", Refused(of_all),
               "They want another key than the clients', or that of --api-key, which they are sent."),
           .is_page = true});
      return;
    }
    found_.insert(found_.end(), refusals.begin(), refusals.end());
  }

  void FindFailures() {
    for (const WorkerFacts& worker : workers_) {
      if (!worker.is_healthy) continue;  // that says why
      for (const auto& [model, outcomes] : worker.models) {
        if (!IsMost(outcomes.failed(), outcomes.attempts(), condition_limits::kLeastFailed)) continue;
        Add(ConditionKind::kModelFails, worker,
            Concat(
                worker.url, " fails", model.empty() ? std::string() : Concat(" model ", Quoted(model)), ": ",
                Share(outcomes.failed(), outcomes.attempts()), " attempts of the last minute got ",
                outcomes.of(ResponseCode::kNone) == 0  ? "5xx"
                : outcomes.of(ResponseCode::k5xx) == 0 ? "no response"
                                                       : "5xx or no response",
                ElsewhereText(worker, model), "."),
            model);
      }
    }
  }

  // Whether it is the worker or the model.
  std::string ElsewhereText(const WorkerFacts& worker, std::string_view model) const {
    Outcomes others;
    for (const WorkerFacts& other : workers_) {
      const auto found = other.models.find(model);
      if (&other != &worker && found != other.models.end()) others.Add(found->second);
    }
    if (others.attempts() == 0) return "; no other worker was tried";
    return Concat(", at the other workers ", Share(others.failed(), others.attempts()));
  }

  // A worker's median against the median of the others' medians, for the same model and kind of response.
  void FindSlow() {
    std::set<std::string_view> models;
    for (const WorkerFacts& worker : workers_) {
      for (const auto& [model, outcomes] : worker.models) models.insert(model);
    }
    for (const std::string_view model : models) {
      FindSlow(model, &Outcomes::stream_heads, "streams");
      FindSlow(model, &Outcomes::whole_heads, "responses");
    }
  }

  void FindSlow(std::string_view model, TimeCounts Outcomes::*times, std::string_view what) {
    std::vector<std::pair<int64_t, const WorkerFacts*>> medians;
    for (const WorkerFacts& worker : workers_) {
      const auto found = worker.models.find(model);
      if (found == worker.models.end()) continue;
      const TimeCounts& counts = found->second.*times;
      if (counts.total() >= condition_limits::kLeastTimed)
        medians.emplace_back(counts.Quantile(0.5), &worker);
    }
    if (medians.size() < 2) return;
    std::sort(medians.begin(), medians.end());
    for (size_t i = 0; i < medians.size(); ++i) {
      // The lower median of all but this one.
      const size_t middle = (medians.size() - 2) / 2;
      const int64_t others = medians[middle + (middle >= i ? 1 : 0)].first;
      const auto& [median, worker] = medians[i];
      const auto limit = static_cast<int64_t>(condition_limits::kSlowFactor * static_cast<double>(others));
      if (median < condition_limits::kLeastSlowNs || median <= limit) continue;
      if (IsKnown(ConditionKind::kWorkerIsSlow, worker->url, model)) continue;
      Add(ConditionKind::kWorkerIsSlow, *worker,
          Concat(
              worker->url, " is slow: the median time until its ", what,
              model.empty() ? std::string() : Concat(" of ", Quoted(model)), " began was ", TimeText(median),
              " in the last minute, at the other workers ", TimeText(others), "."),
          model);
    }
  }

  bool IsKnown(ConditionKind kind, std::string_view url, std::string_view model) const {
    return std::any_of(found_.begin(), found_.end(), [&](const Condition& each) {
      return each.kind == kind && each.worker == url && each.model == model;
    });
  }

  void Add(ConditionKind kind, const WorkerFacts& worker, std::string text, std::string_view model = {}) {
    found_.push_back(
        {.kind = kind, .worker = worker.url, .model = std::string(model), .text = std::move(text)});
  }

  const std::span<const WorkerFacts> workers_;
  std::vector<Condition> found_;
};

}  // namespace

std::string_view ConditionName(ConditionKind kind) {
  constexpr std::array<std::string_view, 10> kNames = {
      "no_worker_serves", "all_reject",       "worker_is_down", "worker_hangs",   "worker_ejected",
      "worker_rejects",   "worker_not_found", "model_fails",    "worker_is_slow", "service"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<Condition> FindConditions(std::span<const WorkerFacts> workers) { return Finder(workers).Find(); }

}  // namespace vllm_router
