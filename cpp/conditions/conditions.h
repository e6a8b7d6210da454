// Conditions: what is wrong with a fleet, in sentences. The log, GET /admin/status, `vllm-router status` and the summaries
// of the alerts say the same.
//
//   FindConditions(facts)  -->  "http://gpu-2:8000 rejects requests: 40 of its 40 responses of the last minute were 401, …"
//
// Judged by the last minute (recent_outcomes.h), with limits below which nothing is said. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "conditions/recent_outcomes.h"

namespace vllm_router {

enum class ConditionKind : uint8_t {
  kNoWorkerServes,
  kAllReject,  // every worker that responds refuses
  kWorkerIsDown,
  kWorkerHangs,
  kWorkerEjected,   // its circuit breaker is open
  kWorkerRejects,   // 401 and 403
  kWorkerNotFound,  // 404
  kModelFails,      // 5xx and no responses for one model at one worker
  kWorkerIsSlow,
  kService,  // what a service says
};
std::string_view ConditionName(ConditionKind kind);  // worker_rejects, …

struct Condition {
  ConditionKind kind;
  std::string_view service = {};  // of kService, what it calls the condition; lives forever
  std::string worker;             // its URL; empty: of the fleet or a service
  std::string model;              // empty: of all
  std::string text;               // a sentence
  bool is_page = false;           // requests fail; else a person may look at it later

  std::string_view name() const { return service.empty() ? ConditionName(kind) : service; }
  bool IsOf(const Condition& other) const {
    return name() == other.name() && worker == other.worker && model == other.model;
  }
};

struct WorkerFacts {
  std::string url;
  bool is_healthy = true;
  bool is_ejected = false;
  bool is_in_doubt = false;
  bool is_draining = false;
  ModelOutcomes models;  // what it did in the last minute
};

namespace condition_limits {

inline constexpr uint64_t kLeastRejected = 10;       // responses with 401 or 403, and half of all
inline constexpr uint64_t kLeastNotFound = 20;       // likewise 404: a client may ask for what there is not
inline constexpr uint64_t kLeastFailed = 5;          // attempts for a model, and half of these
inline constexpr uint64_t kLeastTimed = 5;           // responses of a worker for its times to count
inline constexpr double kSlowFactor = 3;             // times the median of the other workers' medians
inline constexpr int64_t kLeastSlowNs = 50'000'000;  // faster is never slow

}  // namespace condition_limits

// The worst first.
std::vector<Condition> FindConditions(std::span<const WorkerFacts> workers);

}  // namespace vllm_router
