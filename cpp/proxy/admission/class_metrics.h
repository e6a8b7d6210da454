// ClassMetrics: the metrics of priority classes. Any thread.
#pragma once

#include <utility>
#include <vector>

namespace vllm_router {

class ClassPools;
class MetricsPage;
struct ThreadClasses;

class ClassMetrics {
 public:
  // The arguments outlive it.
  ClassMetrics(const ClassPools& pools, std::vector<const ThreadClasses*> threads)
      : pools_(pools), threads_(std::move(threads)) {}

  void Write(MetricsPage* page) const;

 private:
  const ClassPools& pools_;
  const std::vector<const ThreadClasses*> threads_;
};

}  // namespace vllm_router
