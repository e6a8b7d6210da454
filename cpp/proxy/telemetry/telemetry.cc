#include "proxy/telemetry/telemetry.h"

#include <algorithm>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
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

std::string_view TokenizeEndName(TokenizeEnd end) {
  constexpr std::array<std::string_view, kTokenizeEndCount> kNames = {
      "ok", "timeout", "failed", "refused", "unknown", "gone", "nobody"};
  return kNames[static_cast<size_t>(end)];
}

WorkerCounters& Telemetry::Shard::Of(const std::shared_ptr<Worker>& worker) {
  const auto id = static_cast<uint32_t>(worker->id);
  const auto found = workers.find(id);
  if (found != workers.end()) return *found->second;
  auto tallies = std::make_unique<WorkerCounters>(worker);
  WorkerCounters& added = *tallies;
  MutexLock lock(mutex);
  std::erase_if(workers, [](const auto& entry) { return entry.second->worker.expired(); });
  workers.emplace(id, std::move(tallies));
  return added;
}

const WorkerCounters* Telemetry::Shard::Find(WorkerId worker) const {
  const auto found = workers.find(static_cast<uint32_t>(worker));
  return found == workers.end() ? nullptr : found->second.get();
}

std::string_view SharedCacheErrorName(SharedCacheError error) {
  constexpr std::array<std::string_view, kSharedCacheErrorCount> kNames = {"connect", "timeout",    "http",
                                                                           "json",    "not_leader", "layout"};
  return kNames[static_cast<size_t>(error)];
}

std::string_view SharedCacheKeyName(SharedCacheKey key) {
  constexpr std::array<std::string_view, kSharedCacheKeyCount> kNames = {"found", "missing", "cached"};
  return kNames[static_cast<size_t>(key)];
}

Telemetry::Telemetry(std::string_view policy, const Logs& logs)
    : shard_(std::make_unique<Shard>()), logs_(logs), access_line_(policy) {
  if (logs.records != nullptr) record_line_.emplace(logs.records->key(), logs.records->block_size());
}

Telemetry::~Telemetry() = default;

void Telemetry::Decided(const std::shared_ptr<Worker>& worker, const Decision& decision) {
  shard_->Of(worker).decisions.Add();
  shard_->reasons[static_cast<size_t>(decision.reason)].Add();
}

void Telemetry::DemandedAny() { shard_->undecided_demand.Add(); }

void Telemetry::SharedCacheQueried(int64_t nanos) { shard_->shared_cache.Get().queries.Add(nanos); }

void Telemetry::SharedCacheFailed(SharedCacheError error) {
  shard_->shared_cache.Get().errors[static_cast<size_t>(error)].Add();
}

void Telemetry::SharedCacheKeys(SharedCacheKey result, uint64_t count) {
  shard_->shared_cache.Get().keys[static_cast<size_t>(result)].Add(count);
}

void Telemetry::SharedCacheHits(uint64_t found, uint64_t blocks) {
  if (blocks == 0) return;
  shard_->shared_cache.Get().hit_rates.Add(static_cast<int64_t>(found * buckets::kShareOne / blocks));
}

void Telemetry::SharedCacheBeyond(uint64_t blocks) {
  shard_->shared_cache.Get().beyond_blocks.Add(static_cast<int64_t>(blocks));
}

void Telemetry::ClaimEnded(std::string_view end) { shard_->pd.Get().claims.Add(end); }

void Telemetry::BootstrapQueried(const std::shared_ptr<Worker>& worker, BootstrapResult result) {
  shard_->Of(worker).bootstrap_queries[static_cast<size_t>(result)].Add();
}

std::string_view BootstrapResultName(BootstrapResult result) {
  switch (result) {
    case BootstrapResult::kOk:
      return "ok";
    case BootstrapResult::kNoId:
      return "no_id";
    case BootstrapResult::kUnreachable:
      return "unreachable";
    case BootstrapResult::kInvalid:
      return "invalid";
  }
  return "";
}

void Telemetry::PairSent(const std::shared_ptr<Worker>& worker) {
  shard_->Of(worker).pair.Get().requests.Add();
}

void Telemetry::PairFailed(const std::shared_ptr<Worker>& worker) {
  shard_->Of(worker).pair.Get().errors.Add();
}

void Telemetry::PairBrokeOff(const std::shared_ptr<Worker>& worker) {
  shard_->Of(worker).pair.Get().stream_errors.Add();
}

void Telemetry::PairRetried(std::string_view failed) { shard_->pd.Get().retries.Add(failed); }

void Telemetry::PairCancelled(std::string_view state) { shard_->pd.Get().cancelled.Add(state); }

void Telemetry::MembersRemoved(std::string_view name, uint64_t count) {
  if (count != 0) shard_->removed_members.Get().Add(name, count);
}

void Telemetry::CacheControl(std::string_view result) { shard_->cache_control.Get().Add(result); }

void Telemetry::Retried(const std::shared_ptr<Worker>& worker, uint32_t failures, int64_t pause_ns) {
  if (worker != nullptr) shard_->Of(worker).failed_attempts.Add();
  const size_t attempt = std::min<size_t>(failures, Shard::kBackoffs) - 1;
  shard_->backoffs[attempt].Get().Add(pause_ns);
}

void Telemetry::RecordResult(const std::shared_ptr<Worker>& worker, BreakerResult verdict) {
  if (verdict == BreakerResult::kSuccess) shard_->Of(worker).breaker_successes.Add();
  if (verdict == BreakerResult::kFailure) shard_->Of(worker).breaker_failures.Add();
}

void Telemetry::ServerError(const std::shared_ptr<Worker>& worker, ErrorBlame blame) {
  shard_->Of(worker).server_errors[static_cast<size_t>(blame)].Add();
}

void Telemetry::OnBreakerStateChange(const std::shared_ptr<Worker>& worker, BreakerChange change) {
  shard_->Of(worker)
      .breaker_transitions[static_cast<size_t>(change.from)][static_cast<size_t>(change.to)]
      .Add();
}

void Telemetry::Record(const RequestInfo& record) {
  Count(record);
  if (logs_.access != nullptr && LogEnabled(LogLevel::kInfo)) WriteAccessLine(record);
  if (record_line_.has_value() && record.prompt != nullptr) WriteRecordLine(record);
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
  if (record.pd != nullptr) CountStages(record, good);
  for (const AttemptInfo& attempt : record.attempts_made)
    shard.Of(attempt.worker).responses[static_cast<size_t>(ResponseCodeOf(attempt.status))].Add();
  if (record.worker == nullptr || record.attempts == 0) return;

  if (record.worker_stalls != 0) shard.worker_stalls.Add(record.worker_stalls);
  if (record.stale_retry) shard.stale_retries.Add();
  shard.worker_bytes_out.Add(record.bytes_in);
  const bool is_pair = record.pd != nullptr && record.pd->prefill != nullptr;
  if (record.retries == 0 && !is_pair) shard.overhead.Add(record.sent_ns - record.body_ns - record.queue_ns);
  WorkerCounters& worker = shard.Of(record.worker);
  worker.processed.Add();
  if (record.responded_ns == 0) return;

  shard.worker_bytes_in.Add(record.bytes_out);
  // Of a stream that another worker was to finish, what came first is of the first.
  const bool one_worker = record.continued == nullptr;
  WorkerCounters& first = one_worker ? worker : shard.Of(record.continued->first_worker);
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

void Telemetry::CountStages(const RequestInfo& record, bool good) {
  const PdInfo& pd = *record.pd;
  Shard::Pd& counts = shard_->pd.Get();
  if (!pd.kind.empty()) counts.plans.Add(pd.kind);
  if (!pd.local.empty()) counts.local.Add(pd.local);
  if (pd.saved_tokens != 0) counts.bypass_saved_tokens.Add(pd.saved_tokens);
  if (pd.prefill_ns != 0) counts.prefills.Add(pd.prefill_ns);
  if (pd.handoff_ns != 0) counts.handoffs.Add(pd.handoff_ns);
  if (!good) {
    // The reference router's word for want of a worker of either stage.
    counts.errors.Add(
        record.error == "no_workers" ? std::string_view("server_selection") : ErrorType(record));
  }
  if (pd.prefill == nullptr) return;
  const auto route = static_cast<size_t>(record.route);
  counts.requests[route].Add();
  counts.durations[route].Get().Add(record.end_ns - record.head_ns);
}

void Telemetry::WriteAccessLine(const RequestInfo& record) {
  const uint64_t number = logs_.access->NextNumber();
  if (access_lines_.size() >= kMaxAccessLogBytes) {
    shard_->access_lines_dropped.Add();
    return;
  }
  if (log_format() == LogFormat::kJson) {
    access_line_.AppendJson(record, number, &access_lines_);
  } else {
    access_line_.AppendText(record, number, &access_lines_);
  }
}

void Telemetry::WriteRecordLine(const RequestInfo& record) {
  if (record_lines_.size() >= kMaxAccessLogBytes) {
    shard_->record_lines_dropped.Add();
    return;
  }
  record_line_->Append(record, &record_lines_);
}

void Telemetry::Flush() {
  if (!access_lines_.empty()) logs_.access->Take(&access_lines_);
  if (!record_lines_.empty()) logs_.records->writer().Take(&record_lines_);
}

}  // namespace vllm_router
