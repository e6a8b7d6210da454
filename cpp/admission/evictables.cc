#include "admission/evictables.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace vllm_router {
namespace {

// The largest is evicted.
auto Order(const Evictable& request, int64_t left) {
  return std::tuple(request.of_class, -int64_t{request.evictions}, left, request.chosen_ns);
}

}  // namespace

int64_t TokensLeft(const Evictable& request, double tokens_per_second, int64_t now_ns) {
  const double pace = tokens_per_second > 0 ? tokens_per_second : Evictables::kFastPace;
  const double seconds = static_cast<double>(std::max<int64_t>(0, now_ns - request.chosen_ns)) / 1e9;
  return static_cast<int64_t>(std::max(0.0, static_cast<double>(request.tokens) - pace * seconds));
}

Evictables::Number Evictables::Add(WorkerId worker, const Evictable& request, std::function<void()> evict) {
  const MutexLock lock(mutex_);
  const Number number = ++last_number_;
  at_[worker].push_back({.number = number, .request = request, .evict = std::move(evict)});
  size_.fetch_add(1, std::memory_order_relaxed);
  return number;
}

void Evictables::Remove(WorkerId worker, Number number) {
  const MutexLock lock(mutex_);
  const auto found = at_.find(worker);
  if (found == at_.end()) return;
  const auto listed = std::ranges::find(found->second, number, &Listed::number);
  if (listed != found->second.end()) Erase(found, listed);
}

void Evictables::Erase(AtWorkers::iterator worker, std::vector<Listed>::iterator listed) {
  worker->second.erase(listed);
  if (worker->second.empty()) at_.erase(worker);
  size_.fetch_sub(1, std::memory_order_relaxed);
}

bool Evictables::EvictAt(
    WorkerId worker, const AdmissionSettings& settings, double tokens_per_second, int64_t now_ns) {
  if (size() == 0) return false;
  std::function<void()> evict;
  {
    const MutexLock lock(mutex_);
    const auto found = at_.find(worker);
    if (found == at_.end()) return false;
    const auto last = evicted_ns_.find(worker);
    if (last != evicted_ns_.end() && now_ns - last->second < kPauseNs) return false;
    std::vector<Listed>& all = found->second;
    auto chosen = all.end();
    int64_t chosen_left = 0;
    for (auto each = all.begin(); each != all.end(); ++each) {
      const Evictable& request = each->request;
      const int64_t left = TokensLeft(request, tokens_per_second, now_ns);
      const bool may_be = settings.of(request.of_class).evict && request.evictions < kMostEvictions;
      if (!may_be || left <= kLeastTokens) continue;
      if (chosen != all.end() && Order(request, left) < Order(chosen->request, chosen_left)) continue;
      chosen = each;
      chosen_left = left;
    }
    if (chosen == all.end()) return false;
    evict = std::move(chosen->evict);
    Erase(found, chosen);
    absl::erase_if(evicted_ns_, [now_ns](const auto& entry) { return now_ns - entry.second >= kPauseNs; });
    evicted_ns_[worker] = now_ns;
  }
  evict();
  return true;
}

}  // namespace vllm_router
