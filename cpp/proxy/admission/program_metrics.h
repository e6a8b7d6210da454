// ProgramMetrics: the metrics of programs. Any thread.
#pragma once

#include <utility>
#include <vector>

namespace vllm_router {

class MetricsPage;
class Programs;
class Router;
struct ThreadPrograms;

class ProgramMetrics {
 public:
  // The arguments outlive it.
  ProgramMetrics(const Programs& programs, const Router& router, std::vector<const ThreadPrograms*> threads)
      : programs_(programs), router_(router), threads_(std::move(threads)) {}

  void Write(MetricsPage* page) const;

 private:
  const Programs& programs_;
  const Router& router_;
  const std::vector<const ThreadPrograms*> threads_;
};

}  // namespace vllm_router
