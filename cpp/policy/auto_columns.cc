#include "policy/auto_columns.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace vllm_router {
namespace {

constexpr size_t kLanes = 8;  // of sums and maxima

int32_t Limited(int64_t requests) {
  return static_cast<int32_t>(std::min<int64_t>(requests, std::numeric_limits<int32_t>::max()));
}

// As a cast does, for what no fleet of 2^51 tokens exceeds: processors before AVX-512 cannot convert so many at once.
double ToDouble(int64_t tokens) {
  constexpr double kShift = 6755399441055744;  // 2^52 + 2^51, whose last bit is worth 1
  return std::bit_cast<double>(std::bit_cast<int64_t>(kShift) + tokens) - kShift;
}

// Small differences are noise.
double SlowOf(double pace) {
  const double beyond = std::abs(pace) - AutoColumns::kPaceNoise;
  return beyond <= 0 ? 1 : std::exp(pace < 0 ? -beyond : beyond);
}

}  // namespace

void AutoColumns::Resize(size_t members) {
  if (cost_.size() >= members) return;
  for (std::vector<double>* column :
       {&uncached_, &sent_, &slow_, &own_weight_, &polled_queued_, &polled_context_, &cost_})
    column->resize(members);
  for (std::vector<int64_t>* column : {&queued_, &context_}) column->resize(members);
  for (std::vector<int32_t>* column : {&waiting_, &requests_}) column->resize(members);
  speed_.resize(members);
}

AutoLoads AutoColumns::Read(const FleetView& fleet, const KvIndex::Plan* plan, const WorkerHistory& history) {
  const std::span<const uint32_t> eligible = fleet.eligible();
  rows_ = eligible.size();
  are_polled_ = false;
  are_slow_ = false;
  int64_t* const queued = queued_.data();
  int32_t* const waiting = waiting_.data();
  int32_t* const requests = requests_.data();
  int64_t* const context = context_.data();
  int64_t all_requests = 0;
  int64_t all_context = 0;
  uint64_t others = 0;
  for (size_t row = 0; row < rows_; ++row) {
    const WorkerLoad& load = fleet.load(eligible[row]);
    const WorkerLoad::Reading own = load.ReadOwn();
    others |= load.others_known();
    all_requests += own.requests;
    all_context += own.context;
    queued[row] = own.queued;
    waiting[row] = static_cast<int32_t>(own.waiting);
    requests[row] = static_cast<int32_t>(own.requests);
    context[row] = own.context;
  }
  AutoLoads all{.requests = all_requests, .context = all_context};
  // A second pass over the loads for the router that is not alone, so that the first stays short.
  for (size_t row = 0; others != 0 && row < eligible.size(); ++row) {
    const WorkerLoad::Reading more = fleet.load(eligible[row]).ReadOthers();
    all.Add(more);
    queued[row] += more.queued;
    waiting[row] = Limited(waiting[row] + more.waiting);
    requests[row] = Limited(requests[row] + more.requests);
    context[row] += more.context;
  }
  ReadWeights(fleet, plan);
  ReadHistories(fleet.eligible(), plan, history);
  return all;
}

void AutoColumns::ReadWeights(const FleetView& fleet, const KvIndex::Plan* plan) {
  const std::span<const uint32_t> eligible = fleet.eligible();
  if (plan != nullptr && (plan->equal_weights || eligible.size() == plan->weights.size())) {
    weight_ = plan->weights.data();
  } else {
    for (size_t row = 0; row < rows_; ++row) {
      own_weight_[row] = plan != nullptr
                             ? plan->weights[eligible[row]]
                             : static_cast<double>(fleet.worker(eligible[row]).weight) / kWeightOne;
    }
    weight_ = own_weight_.data();
  }
  weights_differ_ =
      (plan == nullptr || !plan->equal_weights) &&
      std::any_of(weight_, weight_ + rows_, [this](double weight) { return weight != *weight_; });
  are_weighted_ = weights_differ_ || *weight_ != 1;
}

void AutoColumns::ReadHistories(
    std::span<const uint32_t> eligible, const KvIndex::Plan* plan, const WorkerHistory& history) {
  are_measured_ = false;
  all_sent_ = 0;
  if (plan == nullptr) {
    std::fill_n(sent_.data(), rows_, 0.0);
    return;
  }
  const WorkerHistory::Place* const places = plan->known.data();
  double* const sent = sent_.data();
  WorkerHistory::Speed* const speed = speed_.data();
  double all_sent = 0;
  uint64_t measured = 0;
  for (size_t row = 0; row < eligible.size(); ++row) {
    const WorkerHistory::Reading read = history.Read(places[eligible[row]]);
    sent[row] = read.sent;
    speed[row] = read.speed;
    all_sent += read.sent;
    measured |= std::bit_cast<uint64_t>(read.speed);
  }
  all_sent_ = all_sent;
  are_measured_ = measured != 0;
}

void AutoColumns::AddPolled(const FleetView& fleet, double mean_uncached, double mean_prompt) {
  const std::span<const uint32_t> eligible = fleet.eligible();
  for (size_t row = 0; row < eligible.size(); ++row) {
    const WorkerLoad::Reading load = fleet.load(eligible[row]).ReadOthers();
    polled_queued_[row] = static_cast<double>(load.polled_waiting) * mean_uncached;
    polled_context_[row] = static_cast<double>(load.polled) * mean_prompt;
  }
  are_polled_ = true;
}

void AutoColumns::TakeSent(size_t row, double work) { sent_[row] = std::max(0.0, sent_[row] - work); }

// A worker is slow by what others are known to take: one that was not measured is as they are, and the only one that was
// is as the rest.
void AutoColumns::CompareSpeeds() {
  if (weights_differ_ || !are_measured_) return;
  const WorkerHistory::Speed* const speed = speed_.data();
  const size_t in_lanes = rows_ - rows_ % kLanes;
  // Each lane by itself, so that no sum waits for the one before it.
  std::array<double, kLanes> pace_of{};
  std::array<double, kLanes> known_of{};
  const auto add = [&](size_t row, size_t lane) {
    pace_of[lane] += speed[row].pace;
    known_of[lane] += speed[row].known;
  };
  for (size_t row = 0; row < in_lanes; row += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) add(row + lane, lane);
  }
  for (size_t row = in_lanes; row < rows_; ++row) add(row, row - in_lanes);
  const double all_pace = std::accumulate(pace_of.begin(), pace_of.end(), 0.0);
  const double all_known = std::accumulate(known_of.begin(), known_of.end(), 0.0);
  if (!(all_known > 0)) return;
  const double mean = all_pace / all_known;
  double* const slow = slow_.data();
  std::array<double, kLanes> most{};
  const auto compare = [&](size_t row, size_t lane) {
    const double pace = speed[row].pace;
    const double known = speed[row].known;
    const double others = std::min(1.0, all_known - known);
    slow[row] = (pace - mean * known) * others;
    const double size = std::abs(slow[row]);
    most[lane] = most[lane] < size ? size : most[lane];
  };
  for (size_t row = 0; row < in_lanes; row += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) compare(row + lane, lane);
  }
  for (size_t row = in_lanes; row < rows_; ++row) compare(row, row - in_lanes);
  // Usually: all are as fast as the others.
  are_slow_ = *std::ranges::max_element(most) > kPaceNoise;
  if (are_slow_) std::transform(slow, slow + rows_, slow, SlowOf);
}

void AutoColumns::Compact(std::span<const uint32_t> eligible, size_t members) {
  if (eligible.size() == members) return;
  for (size_t row = 0; row < eligible.size(); ++row) uncached_[row] = uncached_[eligible[row]];
}

struct AutoColumns::Loop {
  using Run = void (*)(const AutoColumns& columns, const AutoPrices& prices, double per_sent, double* cost);

  // Usual: no worker is weighted, slow or polled, so that columns which change nothing are not read.
  template <bool kUsual>
  [[gnu::always_inline]] static void Fill(
      const AutoColumns& columns, const AutoPrices& given, double per_sent, double* __restrict cost) {
    // A copy that no function has seen: else each cost written could change it, and this is no vector code.
    const AutoPrices prices = given;
    const size_t rows = columns.rows_;
    const int64_t* const queued = columns.queued_.data();
    const int32_t* const waiting = columns.waiting_.data();
    const double* const uncached = columns.uncached_.data();
    const int32_t* const requests = columns.requests_.data();
    const int64_t* const context = columns.context_.data();
    const double* const sent = columns.sent_.data();
    const double* const polled_queued = columns.polled_queued_.data();
    const double* const polled_context = columns.polled_context_.data();
    const double* const slow = columns.slow_.data();
    const double* const weight = columns.weight_;
    for (size_t row = 0; row < rows; ++row) {
      // Not even 0 is added where nothing is: a compiler may not leave that out.
      const auto with = [row](double tokens, const double* polled) {
        if constexpr (kUsual) return tokens;
        return tokens + polled[row];
      };
      cost[row] = AutoCost(
          {.queued = with(ToDouble(queued[row]), polled_queued),
           .waiting = static_cast<double>(waiting[row]),
           .uncached = uncached[row],
           .requests = static_cast<double>(requests[row]),
           .context = with(ToDouble(context[row]), polled_context),
           .sent = sent[row] * per_sent,
           .slow = kUsual ? 1 : slow[row],
           .weight = kUsual ? 1 : weight[row]},
          prices);
    }
  }
  [[gnu::always_inline]] static void FillAny(
      const AutoColumns& columns, const AutoPrices& prices, double per_sent, double* cost) {
    if (columns.is_usual()) return Fill<true>(columns, prices, per_sent, cost);
    Fill<false>(columns, prices, per_sent, cost);
  }

  static void Anywhere(const AutoColumns& columns, const AutoPrices& prices, double per_sent, double* cost) {
    FillAny(columns, prices, per_sent, cost);
  }
#if defined(__x86_64__)
  // Without FMA, which rounds once where the others round twice.
  [[gnu::target("avx2")]] static void Avx2(
      const AutoColumns& columns, const AutoPrices& prices, double per_sent, double* cost) {
    FillAny(columns, prices, per_sent, cost);
  }
#endif

  static Run Find() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return Avx2;
#endif
    return Anywhere;
  }
};

std::span<double> AutoColumns::Costs(const AutoPrices& prices) {
  static const Loop::Run run = Loop::Find();
  if (!is_usual()) {
    if (!are_slow_) std::fill_n(slow_.data(), rows_, 1.0);
    if (!are_polled_) {
      std::fill_n(polled_queued_.data(), rows_, 0.0);
      std::fill_n(polled_context_.data(), rows_, 0.0);
    }
  }
  const double per_sent = all_sent_ > 0 ? static_cast<double>(rows_) / all_sent_ : 0;
  run(*this, prices, per_sent, cost_.data());
  return {cost_.data(), rows_};
}

}  // namespace vllm_router
