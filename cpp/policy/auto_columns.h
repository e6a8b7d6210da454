// AutoColumns: the terms of auto's cost (policy/auto_cost.h) of all eligible workers, a column each, and the costs.
//
//   row   worker     queued  waiting  requests  context   sent   slow  weight   uncached  ->  cost
//   0     w0             90        1         4     2100    310      1       1        512      1204.5
//   1     w2              0        0         2      900    295      1       1        512       640.1
//
// Read() takes each counter once, since other threads change them meanwhile: a cache line per load, half of one per
// history. Columns that are 1 for all workers, as they usually are, are not computed with. The loop over the others is
// vector code, with AVX2 where the processor has it: the same operations in the same order, so the same bits.
//
// Cost: 3 to 6 ns and 88 bytes per worker. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "policy/auto_cost.h"
#include "policy/kv_index.h"
#include "policy/worker_history.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class AutoColumns {
 public:
  // Smaller differences between times of workers are noise, as a logarithm.
  static constexpr double kPaceNoise = 0.15;

  // Room for so many workers.
  void Resize(size_t members);

  // Loads, weights and histories of the eligible workers; without a plan nothing is known of histories.
  AutoLoads Read(const FleetView& fleet, const KvIndex::Plan* plan, const WorkerHistory& history);
  // Of requests whose tokens are not known: what each is taken for.
  void AddPolled(const FleetView& fleet, double mean_uncached, double mean_prompt);
  // The worker of this row was sent less that counts; its part of the sum of all stays.
  void TakeSent(size_t row, double work);
  // From how slow the workers were to how much slower each is than the others; all alike where weights tell them apart.
  void CompareSpeeds();

  double slow(size_t row) const { return are_slow_ ? slow_[row] : 1; }
  double weight(size_t row) const { return weight_[row]; }
  // U, by position until Compact(), then by row.
  double* uncached() { return uncached_.data(); }
  void Compact(std::span<const uint32_t> eligible, size_t members);
  std::span<double> Costs(const AutoPrices& prices);

 private:
  // What one loop computes of `rows` workers.
  struct Loop;

  void ReadWeights(const FleetView& fleet, const KvIndex::Plan* plan);
  void ReadHistories(
      std::span<const uint32_t> eligible, const KvIndex::Plan* plan, const WorkerHistory& history);

  bool is_usual() const { return !are_weighted_ && !are_slow_ && !are_polled_; }

  size_t rows_ = 0;
  double all_sent_ = 0;
  bool weights_differ_ = false;
  bool are_weighted_ = false;       // a weight is not 1
  bool are_measured_ = false;       // something is known of speeds
  bool are_slow_ = false;           // a worker is slower or faster than the others
  bool are_polled_ = false;         // some requests are known by polls alone
  const double* weight_ = nullptr;  // of the plan, or own_weight_
  // Of this router and of those that tell it.
  std::vector<int64_t> queued_;
  std::vector<int32_t> waiting_;
  std::vector<int32_t> requests_;
  std::vector<int64_t> context_;
  std::vector<double> polled_queued_;   // beyond queued_
  std::vector<double> polled_context_;  // beyond context_
  std::vector<double> uncached_;
  std::vector<double> sent_;
  std::vector<WorkerHistory::Speed> speed_;
  std::vector<double> slow_;
  std::vector<double> own_weight_;
  std::vector<double> cost_;
};

}  // namespace vllm_router
