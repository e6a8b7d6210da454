#include "worker/hang_detector.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

namespace vllm_router {
namespace {

constexpr uint32_t kMostLearnt = 4096;             // waits of a kind and size; then all are halved
constexpr int64_t kRememberNs = 300'000'000'000;   // responses
constexpr int64_t kAfterDoubtNs = 10'000'000'000;  // what comes late then says nothing of what is usual
constexpr uint64_t kUsualPercent = 95;             // of waits of requests that do not stream
constexpr uint64_t kTypicalPercent = 50;           // of those that do
constexpr uint64_t kSilencePercent = 99;
constexpr double kTypicalFactor = 2;
constexpr double kUnknownFactor = 2;
constexpr double kLongestNs = 1e18;

using Counts = std::array<uint32_t, kWaitTimes>;
using Sums = std::array<uint64_t, kWaitTimes>;

void Add(const Counts& from, Sums* to) {
  for (size_t time = 0; time < kWaitTimes; ++time) (*to)[time] += from[time];
}

void Add(const WaitTable<uint32_t>& from, WaitTable<uint64_t>* to) {
  for (size_t kind = 0; kind < kResponseKinds; ++kind) {
    for (size_t size = 0; size < kRequestSizes; ++size) Add(from[kind][size], &(*to)[kind][size]);
  }
}

// So that what was long ago counts less.
void HalveIfMany(Counts* row) {
  if (std::accumulate(row->begin(), row->end(), uint32_t{0}) <= kMostLearnt) return;
  for (uint32_t& count : *row) count /= 2;
}

std::optional<int64_t> Quantile(const Sums& sums, uint64_t percent) {
  const uint64_t total = std::accumulate(sums.begin(), sums.end(), uint64_t{0});
  if (total < HangDetector::kMinSamples) return std::nullopt;
  uint64_t sum = 0;
  size_t time = 0;
  while ((sum += sums[time]) * 100 < total * percent) ++time;
  return WaitTimeEnd(time);
}

// Of requests of this size; else of the next smaller one, in proportion; else of the next larger one.
std::optional<int64_t> UsualOf(
    const WaitTable<uint64_t>& waits, ResponseKind kind, size_t size, uint64_t percent) {
  const auto& of_kind = waits[static_cast<size_t>(kind)];
  for (size_t smaller = size + 1; smaller-- > 0;) {
    const std::optional<int64_t> found = Quantile(of_kind[smaller], percent);
    if (found) return *found << (2 * (size - smaller));
  }
  for (size_t larger = size + 1; larger < kRequestSizes; ++larger) {
    if (const std::optional<int64_t> found = Quantile(of_kind[larger], percent)) return found;
  }
  return std::nullopt;
}

}  // namespace

void HangDetector::Learn(int64_t now_ns, const Observed& seen, Known* known, Times* responded) {
  const WaitTable<uint32_t> before = known->now.waits;
  const bool spoke = known->now.last_byte_ns != seen.last_byte_ns;
  known->now = seen;
  if (seen.in_doubt) known->in_doubt_ns = now_ns;
  const bool late = known->in_doubt_ns >= 0 && now_ns - known->in_doubt_ns < kAfterDoubtNs;
  for (size_t kind = 0; kind < kResponseKinds; ++kind) {
    for (size_t size = 0; size < kRequestSizes; ++size) {
      Counts& learnt = known->learnt[kind][size];
      for (size_t time = 0; time < kWaitTimes; ++time) {
        const uint32_t more = seen.waits[kind][size][time] - before[kind][size][time];
        (*responded)[time] += more;
        if (!late) learnt[time] += more;
      }
      HalveIfMany(&learnt);
    }
  }
  LearnSilence(now_ns, spoke, late, known);
}

// A silence counts once it has ended, since one that does not end is what is looked for.
void HangDetector::LearnSilence(int64_t now_ns, bool spoke, bool late, Known* known) {
  if (late || known->now.waiting < static_cast<int64_t>(kMinOverdue)) {
    known->busy_since_ns = -1;
    known->pending = {};
    return;
  }
  if (known->busy_since_ns < 0) known->busy_since_ns = now_ns;
  if (spoke) {
    for (size_t time = 0; time < kWaitTimes; ++time) known->silences[time] += known->pending[time];
    known->pending = {};
    HalveIfMany(&known->silences);
  }
  ++known->pending[WaitTimeOf(now_ns - std::max(known->busy_since_ns, known->now.last_byte_ns))];
}

std::vector<WorkerId> HangDetector::Observe(int64_t now_ns, std::span<const Observed> fleet) {
  std::map<WorkerId, Known> last = std::exchange(workers_, {});
  for (const Observed& seen : fleet) {
    const auto found = last.find(seen.worker);
    Known& known = workers_[seen.worker];
    known.joined_ns = now_ns;
    if (found != last.end()) known = std::move(found->second);
    std::deque<Responded>& responded = responded_[seen.group];
    if (responded.empty() || responded.back().to_ns != now_ns)
      responded.push_back({.from_ns = last_ns_, .to_ns = now_ns});
    Learn(now_ns, seen, &known, &responded.back().times);
  }
  last_ns_ = now_ns;
  for (auto& [group, responded] : responded_) {
    while (!responded.empty() && now_ns - responded.front().to_ns > kRememberNs) responded.pop_front();
  }
  std::erase_if(responded_, [](const auto& entry) { return entry.second.empty(); });
  std::vector<WorkerId> silent;
  if (factor_ <= 0) return silent;
  for (const auto& [worker, known] : workers_) {
    const bool is_silent = now_ns - known.silent_since() >= min_limit_ns_;
    const bool waits = known.now.waiting >= static_cast<int64_t>(kMinOverdue);
    if (is_silent && waits && MayDoubt(known) && Overtaking(known) >= kMinOvertaking)
      silent.push_back(worker);
  }
  return silent;
}

// Responses to requests that were sent after its silence began, so by others. Of a wait only the class is known, so the
// longest of it counts. The tick in which the silence began may have responses of its own.
uint64_t HangDetector::Overtaking(const Known& worker) const {
  const auto found = responded_.find(worker.now.group);
  if (found == responded_.end()) return 0;
  uint64_t overtaking = 0;
  for (auto it = found->second.rbegin(); it != found->second.rend(); ++it) {
    if (it->from_ns < worker.silent_since()) break;
    const int64_t since = it->from_ns - worker.silent_since();
    for (size_t time = 0; time < kWaitTimes && WaitTimeEnd(time) <= since; ++time)
      overtaking += it->times[time];
  }
  return overtaking;
}

bool HangDetector::MayDoubt(const Known& worker) const {
  if (!worker.now.in_rotation || worker.now.in_doubt) return false;
  size_t members = 0;
  size_t out = 0;
  for (const auto& [id, known] : workers_) {
    if (known.now.group != worker.now.group || !known.now.in_rotation) continue;
    ++members;
    if (known.now.out) ++out;
  }
  return members >= 2 && out < std::max<size_t>(1, members / 2);
}

HangDetector::Limits HangDetector::LimitsOf(WorkerId worker, uint64_t most_bytes) const {
  Limits limits;
  for (auto& of_kind : limits) of_kind.fill(kNoLimit);
  const auto found = workers_.find(worker);
  if (found == workers_.end() || factor_ <= 0) return limits;
  WaitTable<uint64_t> own{};
  WaitTable<uint64_t> of_group{};
  Sums own_silences{};
  Sums silences{};
  Add(found->second.learnt, &own);
  Add(found->second.silences, &own_silences);
  for (const auto& [id, known] : workers_) {
    if (known.now.group != found->second.now.group) continue;
    Add(known.learnt, &of_group);
    Add(known.silences, &silences);
  }
  const auto longest = [&](ResponseKind kind, size_t size, uint64_t percent) -> std::optional<int64_t> {
    const std::optional<int64_t> at_all = UsualOf(of_group, kind, size, percent);
    if (!at_all) return std::nullopt;
    return std::max(*at_all, UsualOf(own, kind, size, percent).value_or(0));
  };
  const int64_t silence = std::max(
      Quantile(silences, kSilencePercent).value_or(0), Quantile(own_silences, kSilencePercent).value_or(0));
  for (const ResponseKind kind : {ResponseKind::kStream, ResponseKind::kPlain}) {
    for (size_t size = 0; size < kRequestSizes; ++size) {
      const std::optional<int64_t> usual = longest(kind, size, kUsualPercent);
      if (!usual) continue;
      const bool is_known = UsualOf(own, kind, size, kUsualPercent).has_value();
      const size_t most = std::max(size, RequestSizeOf(most_bytes));
      const int64_t typical = longest(ResponseKind::kStream, most, kTypicalPercent).value_or(0);
      const int64_t of_kind = kind == ResponseKind::kPlain ? *usual : silence;
      const double limit =
          (is_known ? 1 : kUnknownFactor) *
          std::max(kTypicalFactor * static_cast<double>(typical), factor_ * static_cast<double>(of_kind));
      limits[static_cast<size_t>(kind)][size] = std::max(
          is_known ? min_limit_ns_ : min_limit_ns_ * kUnknownTimes,
          static_cast<int64_t>(std::min(limit, kLongestNs)));
    }
  }
  return limits;
}

std::optional<HangDetector::Doubt> HangDetector::Judge(
    WorkerId worker, std::span<const Wait> waits, std::span<const uint64_t> served, int64_t now_ns) {
  const auto found = workers_.find(worker);
  if (found == workers_.end() || waits.empty() || !MayDoubt(found->second)) return std::nullopt;
  Known& known = found->second;
  const int64_t silent_since = known.silent_since();
  const uint64_t largest = std::ranges::max(waits, {}, &Wait::bytes).bytes;
  Doubt doubt{
      .silent_since_ns = silent_since,
      .silent_ns = now_ns - silent_since,
      .limits = LimitsOf(worker, largest)};
  std::set<uint64_t> clients;
  for (const Wait& wait : waits) {
    if (!IsOverdue(wait, doubt.limits, silent_since, now_ns)) continue;
    ++doubt.overdue;
    doubt.streams |= wait.kind == ResponseKind::kStream;
    doubt.limit_ns =
        std::max(doubt.limit_ns, doubt.limits[static_cast<size_t>(wait.kind)][RequestSizeOf(wait.bytes)]);
    clients.insert(wait.client);
  }
  if (doubt.overdue < kMinOverdue) return std::nullopt;
  if (clients.size() == 1) {
    const auto own = static_cast<size_t>(std::ranges::count(served, *clients.begin()));
    if (own * 2 < served.size() || own == 0) return std::nullopt;
  }
  int64_t waiting = 0;
  for (const auto& [id, other] : workers_) {
    const bool is_peer = id != worker && other.now.group == known.now.group && !other.now.in_doubt;
    if (is_peer) waiting += std::max<int64_t>(0, other.now.waiting);
  }
  doubt.overtaking = Overtaking(known);
  if (doubt.overtaking < std::max(kMinOvertaking, static_cast<uint64_t>(waiting) / 4)) return std::nullopt;
  known.now.out = known.now.in_doubt = true;
  return doubt;
}

}  // namespace vllm_router
