#include "proxy/exchange/decision_headers.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "base/time_units.h"
#include "routing/explanation.h"

namespace vllm_router {
namespace {

constexpr size_t kFields = 12;
constexpr size_t kCandidates = 8;
constexpr size_t kLongestModel = 200;

bool MayBeAHeader(std::string_view text) {
  return !text.empty() && text.size() <= kLongestModel &&
         std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < 0x7f; });
}

}  // namespace

DecisionHeaders::DecisionHeaders(const RequestInfo& record, std::string_view policy) {
  if (record.worker == nullptr || !record.decision) return;
  values_.reserve(kFields);  // the fields point into it
  const Decision& decision = *record.decision;
  Add("x-vllm-router-worker", record.worker->url.url);
  if (record.pd != nullptr) {
    const bool bypasses = record.pd->uncached_tokens != 0;
    Add("x-vllm-router-pd", std::string(bypasses ? record.pd->local : record.pd->kind));
    if (record.pd->prefill != nullptr) Add("x-vllm-router-prefill-worker", record.pd->prefill->url.url);
  }
  Add("x-vllm-router-policy", std::string(policy));
  Add("x-vllm-router-method", std::string(MethodOf(decision.reason)));
  Add("x-vllm-router-reason", std::string(ReasonName(decision.reason)));
  if (decision.arm != Arm::kNone) Add("x-vllm-router-arm", std::string(ArmName(decision.arm)));
  if (decision.explanation != nullptr && MayBeAHeader(decision.explanation->model)) {
    Add("x-vllm-router-model", decision.explanation->model);
  }
  if (std::string status = CacheStatus(decision); !status.empty()) {
    Add("x-vllm-router-cache-status", std::move(status));
  }
  Add("x-vllm-router-attempts", std::to_string(record.attempts));
  Add("x-vllm-router-queue-ms",
      std::to_string(std::max<int64_t>(0, record.chosen_ns - record.body_ns) / kNanosPerMs));
  if (std::string candidates = CandidatesLine(decision, kCandidates); !candidates.empty()) {
    Add("x-vllm-router-candidates", std::move(candidates));
  }
}

void DecisionHeaders::Add(std::string_view name, std::string value) {
  values_.push_back(std::move(value));
  fields_.push_back({name, values_.back()});
}

}  // namespace vllm_router
