#include "conditions/recent_outcomes.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/time_units.h"

namespace vllm_router {
namespace {

constexpr double kNanosInMs = kNanosPerMs;
// Longer names are no models that an engine serves; they are counted together.
constexpr size_t kMaxModelBytes = 256;
constexpr auto kSlotCount = static_cast<int64_t>(RecentOutcomes::kSlots);

}  // namespace

size_t TimeCounts::BucketOf(int64_t nanos) {
  const double ms = std::max(1.0, static_cast<double>(nanos) / kNanosInMs);
  return std::min(kBuckets - 1, static_cast<size_t>(std::ilogb(ms * ms)));
}

void TimeCounts::Add(const TimeCounts& others) {
  for (size_t i = 0; i < kBuckets; ++i) counts_[i] += others.counts_[i];
}

uint64_t TimeCounts::total() const { return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0}); }

int64_t TimeCounts::Quantile(double share) const {
  const uint64_t all = total();
  if (all == 0) return 0;
  const auto rank = std::max<uint64_t>(1, static_cast<uint64_t>(std::ceil(share * static_cast<double>(all))));
  uint64_t seen = 0;
  size_t bucket = 0;
  while ((seen += counts_[bucket]) < rank) ++bucket;
  return static_cast<int64_t>(std::exp2((static_cast<double>(bucket) + 0.5) / 2) * kNanosInMs);
}

void Outcomes::Add(const AttemptOutcome& attempt) {
  const ResponseCode code = ResponseCodeOf(attempt.status);
  ++codes[static_cast<size_t>(code)];
  if (code == ResponseCode::k2xx && attempt.head_ns > 0)
    (attempt.is_stream ? stream_heads : whole_heads).Add(attempt.head_ns);
}

void Outcomes::Add(const Outcomes& others) {
  for (size_t i = 0; i < codes.size(); ++i) codes[i] += others.codes[i];
  stream_heads.Add(others.stream_heads);
  whole_heads.Add(others.whole_heads);
}

uint64_t Outcomes::attempts() const { return std::accumulate(codes.begin(), codes.end(), uint64_t{0}); }

Outcomes SumOf(const ModelOutcomes& models) {
  Outcomes sum;
  for (const auto& [name, outcomes] : models) sum.Add(outcomes);
  return sum;
}

RecentOutcomes::Model* RecentOutcomes::PerWorker::Find(std::string_view name) {
  const auto found =
      std::find_if(models.begin(), models.end(), [name](const Model& model) { return model.name == name; });
  return found == models.end() ? nullptr : &*found;
}

RecentOutcomes::Model& RecentOutcomes::PerWorker::ModelOf(
    std::string_view name, ResponseCode code, int64_t number) {
  std::erase_if(models, [number](const Model& model) { return number - model.last >= kSlotCount; });
  if (Model* const known = Find(name)) return *known;
  const bool is_refused = code >= ResponseCode::k401 && code <= ResponseCode::k4xx;
  // The last place is that of all others.
  if (is_refused || name.size() > kMaxModelBytes || models.size() + 1 >= kMaxModels) name = {};
  if (Model* const known = Find(name)) return *known;
  models.push_back({.name = std::string(name)});
  return models.back();
}

// Only the adding thread changes the map, so its look-ups need no lock.
RecentOutcomes::PerWorker& RecentOutcomes::Of(WorkerId worker, int64_t number) {
  const auto found = workers_.find(worker);
  if (found != workers_.end()) return *found->second;
  MutexLock lock(mutex_);
  absl::erase_if(workers_, [number](const auto& entry) { return number - entry.second->last >= kSlotCount; });
  return *workers_.emplace(worker, std::make_shared<PerWorker>()).first->second;
}

void RecentOutcomes::Add(
    WorkerId worker, std::string_view model, const AttemptOutcome& attempt, int64_t now_ns) {
  const int64_t number = now_ns / kSlotNs;
  PerWorker& counted = Of(worker, number);
  const bool is_new = number - std::exchange(counted.last, number) >= kSlotCount;
  MutexLock lock(counted.mutex);
  if (is_new) counted.last_failure = {};
  const ResponseCode code = ResponseCodeOf(attempt.status);
  if (code == ResponseCode::k5xx || code == ResponseCode::kNone) {
    counted.last_failure = {
        .at_ns = now_ns,
        .status = attempt.status,
        .error = attempt.error,
        .model = std::string(model.substr(0, kMaxModelBytes))};
  }
  Model& of_model = counted.ModelOf(model, code, number);
  of_model.last = number;
  Slot& slot = of_model.slots[static_cast<size_t>(number) % kSlots];
  if (slot.number != number) slot = {.number = number, .outcomes = {}};
  slot.outcomes.Add(attempt);
}

void RecentOutcomes::AddTo(OutcomeSums* sums, int64_t now_ns) const {
  const int64_t number = now_ns / kSlotNs;
  std::vector<std::pair<WorkerId, std::shared_ptr<PerWorker>>> workers;
  {
    MutexLock lock(mutex_);
    workers.assign(workers_.begin(), workers_.end());
  }
  for (const auto& [id, worker] : workers) {
    WorkerOutcomes& sum = (*sums)[id];
    MutexLock lock(worker->mutex);
    if (worker->last_failure.at_ns > sum.last_failure.at_ns) sum.last_failure = worker->last_failure;
    for (const Model& model : worker->models) {
      for (const Slot& slot : model.slots) {
        if (slot.number < 0 || slot.number > number || number - slot.number >= kSlotCount) continue;
        sum.models[model.name].Add(slot.outcomes);
      }
    }
  }
}

}  // namespace vllm_router
