#include "proxy/telemetry/telemetry.h"

#include <algorithm>

#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry_shard.h"
#include "routing/prefill_pace.h"

namespace vllm_router {
namespace {

bool IsWhole(ExchangeEnd end) { return end == ExchangeEnd::kDone || end == ExchangeEnd::kNoDone; }

// 101: the protocol was switched, as the client requested.
bool IsGood(int status) { return (status >= 200 && status < 300) || status == 101; }

// A value of the label error_type. The reference router's two words are kept where the meaning is the
// same.
std::string_view ErrorType(const RequestInfo& record) {
  if (record.error == "no_workers") return "no_available_workers";
  if (!record.error.empty()) return record.error;
  return IsWhole(record.end) ? std::string_view("non_retryable_error") : ExchangeEndName(record.end);
}

// What PrefillPace learns from.
void CountPrefill(const RequestInfo& record, WorkerCounters::Prefill* prefill) {
  if (record.prefill_tokens == 0 || record.first_body_ns == 0) return;
  const int64_t waited_ns = (record.stream ? record.first_body_ns : record.end_ns) - record.chosen_ns;
  Counter& waits = record.stream ? prefill->streamed_wait : prefill->whole_wait;
  const auto waited_us = static_cast<uint64_t>(std::max<int64_t>(0, waited_ns)) / 1'000;
  waits.Add(record.prefill_tokens * waited_us / 1'000);  // token-milliseconds
  const int64_t computed_ns = record.first_body_ns - record.sent_ns;
  if (!record.stream || !record.prefills_alone || computed_ns <= 0) return;
  if (record.prefill_tokens < PrefillPace::kLeastTokens) return;
  prefill->alone.Add();
  prefill->alone_tokens.Add(record.prefill_tokens);
  prefill->alone_micros.Add(static_cast<uint64_t>(computed_ns) / 1'000);
}

}  // namespace

Telemetry::Telemetry(std::string_view policy, const Logs& logs)
    : lines(policy, logs), shard_(std::make_unique<Shard>()) {}

Telemetry::~Telemetry() = default;

StageTelemetry& Telemetry::stages() { return shard_->stages; }

void Telemetry::Decided(const std::shared_ptr<Worker>& worker, const Decision& decision) {
  shard_->workers.Of(worker).decisions.Add();
  shard_->reasons[static_cast<size_t>(decision.reason)].Add();
}

void Telemetry::DemandedAny() { shard_->undecided_demand.Add(); }

void Telemetry::CacheControl(std::string_view result) { shard_->cache_control.Get().Add(result); }

void Telemetry::Retried(const std::shared_ptr<Worker>& worker, uint32_t failures, int64_t pause_ns) {
  if (worker != nullptr) shard_->workers.Of(worker).failed_attempts.Add();
  const size_t attempt = std::min<size_t>(failures, Shard::kBackoffs) - 1;
  shard_->backoffs[attempt].Get().Add(pause_ns);
}

void Telemetry::RecordResult(const std::shared_ptr<Worker>& worker, BreakerResult verdict) {
  if (verdict == BreakerResult::kSuccess) shard_->workers.Of(worker).breaker_successes.Add();
  if (verdict == BreakerResult::kFailure) shard_->workers.Of(worker).breaker_failures.Add();
}

void Telemetry::ServerError(const std::shared_ptr<Worker>& worker, ErrorBlame blame) {
  shard_->workers.Of(worker).server_errors[static_cast<size_t>(blame)].Add();
}

void Telemetry::OnBreakerStateChange(const std::shared_ptr<Worker>& worker, BreakerChange change) {
  shard_->workers.Of(worker)
      .breaker_transitions[static_cast<size_t>(change.from)][static_cast<size_t>(change.to)]
      .Add();
}

void Telemetry::Record(const RequestInfo& record) {
  Count(record);
  lines.Write(record);
}

void Telemetry::Count(const RequestInfo& record) {
  Shard& shard = *shard_;
  const auto route = static_cast<size_t>(record.route);
  const RouteInfo& info = RouteOf(record.route);
  const bool responded = record.status >= StatusCounters::kFirst &&
                         record.status < StatusCounters::kFirst + StatusCounters::kCount;
  const bool good = IsWhole(record.end) && IsGood(record.status);
  const int64_t total_ns = record.end_ns - record.head_ns;

  shard.ends[route][static_cast<size_t>(record.end)].Add();
  if (responded) shard.statuses[route].Get()[record.status].Add();
  if (!record.bad_request_rule.empty()) shard.bad_requests.Add(record.bad_request_rule);
  if (!record.refusal.empty()) shard.refusals.Add(record.refusal);
  if (record.queue_ns != 0) shard.queue_waits.Add(record.queue_ns);

  if (!info.own && record.head_ns != 0) {
    shard.durations[route].Get().Add(total_ns);
    if (good) {
      shard.successes[route].Add();
      if (info.generates) shard.generate_durations.Add(total_ns);
    } else {
      shard.errors[route].Get().Add(ErrorType(record));
    }
    if (record.route == Route::kEmbeddings) {
      if (good) {
        shard.embeddings_durations.Add(total_ns);
      } else if (!responded || IsGood(record.status)) {
        shard.embeddings_cut[static_cast<size_t>(record.end)].Add();
      }
    }
  }

  if (record.retries != 0) shard.retries[route].Add(record.retries);
  if (record.retries_exhausted) shard.retries_exhausted[route].Add();
  shard.client_bytes_in.Add(record.bytes_in);
  shard.client_bytes_out.Add(record.bytes_out);
  if (record.keepalives != 0) shard.sse_keepalives.Add(record.keepalives);
  if (record.client_stalls != 0) shard.client_stalls.Add(record.client_stalls);
  if (record.pd != nullptr) shard.stages.Record(record, good ? std::string_view() : ErrorType(record));
  for (const AttemptInfo& attempt : record.attempts_made)
    shard.workers.Of(attempt.worker).responses[static_cast<size_t>(ResponseCodeOf(attempt.status))].Add();
  if (record.worker == nullptr || record.attempts == 0) return;

  if (record.worker_stalls != 0) shard.worker_stalls.Add(record.worker_stalls);
  if (record.stale_retry) shard.stale_retries.Add();
  shard.worker_bytes_out.Add(record.bytes_in);
  const bool is_pair = record.pd != nullptr && record.pd->prefill != nullptr;
  if (record.retries == 0 && !is_pair) shard.overhead.Add(record.sent_ns - record.body_ns - record.queue_ns);
  WorkerCounters& worker = shard.workers.Of(record.worker);
  worker.processed.Add();
  if (record.responded_ns == 0) return;

  shard.worker_bytes_in.Add(record.bytes_out);
  // Of a stream that another worker was to finish, what came first is of the first.
  const bool one_worker = record.continued == nullptr;
  WorkerCounters& first = one_worker ? worker : shard.workers.Of(record.continued->first_worker);
  WorkerCounters::Times& times = first.times[route].Get();
  times.head.Add(record.responded_ns - record.sent_ns);
  if (record.stream && IsGood(record.status) && record.first_body_ns != 0) {
    times.first_token.Add(record.first_body_ns - record.head_ns);
  }
  if (info.generates && good && one_worker) CountPrefill(record, &worker.prefill);
  if (record.prompt_tokens.has_value()) worker.prompt_tokens.Add(*record.prompt_tokens);
  if (record.completion_tokens.has_value()) worker.completion_tokens.Add(*record.completion_tokens);
  if (record.cached_tokens.has_value()) worker.cached_tokens.Add(*record.cached_tokens);
}

}  // namespace vllm_router
