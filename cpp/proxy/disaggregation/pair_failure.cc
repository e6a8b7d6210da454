#include "proxy/disaggregation/pair_failure.h"

#include "proxy/disaggregation/pair_fact_poller.h"
#include "proxy/disaggregation/push_identities.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// A prefill worker that has just died fails transfers to all decode workers, so these are not to blame for a few.
constexpr uint32_t kPardoned = 4;  // in a row

// Whether an attempt is over with this event.
bool IsFailure(PdEventType type) {
  const bool is_of_prefill = type >= PdEventType::kPRejected && type <= PdEventType::kPTimeout;
  const bool is_of_decode = type >= PdEventType::kDRejected && type <= PdEventType::kDTimeout;
  return is_of_prefill || (is_of_decode && type != PdEventType::kDIneligible);
}

}  // namespace

void PairFailure::Note(StageLeg& leg, const PdEvent& event, bool names_engine) {
  if (event.type == PdEventType::kPOverBudget) lacks_memory_ = true;
  if (!IsFailure(event.type)) return;
  const bool is_prefill = leg.stage() == Stage::kPrefill;
  const std::shared_ptr<Worker>& source = choice_.prefill().worker;
  side_ = is_prefill ? &choice_.prefill() : &choice_.decode();
  what_ = is_prefill ? "prefill" : "decode";
  if (is_prefill && event.type != PdEventType::kPUnreached) prefill_was_reached_ = true;
  thread_.telemetry.stages().PairFailed(leg.worker());
  if (source != nullptr)
    thread_.features.Find<PushIdentities>()->Forget(source->id);  // perhaps its engine has started anew
  const bool is_rejected = event.type == PdEventType::kPRejected || event.type == PdEventType::kDRejected;
  const bool is_of_pair = is_prefill || leg.has_parameters();
  auto* const facts = thread_.features.Find<PairFactPoller>();
  if (facts != nullptr && names_engine && is_of_pair && !is_rejected) facts->Recheck(source);
  const bool is_transfer =
      leg.has_parameters() && (event.type == PdEventType::kDError || event.type == PdEventType::kDErrorEvent);
  const bool is_late = leg.has_parameters() && event.type == PdEventType::kDTimeout;
  if (is_transfer || is_late) what_ = "transfer";
  if (is_transfer && leg.worker()->failed_transfers.fetch_add(1, std::memory_order_relaxed) >= kPardoned) {
    leg.request().outcome().RecordAttempt();  // not for want of a prefill worker
  }
  FailedAttempt failure{
      .how = leg.request().outcome().failure(), .retry_after_ms = leg.result().retry_after_ms};
  if (leg.request().outcome().drained()) {
    error_ = leg.request().outcome().error();
  } else if (leg.result().broke_off) {
    failure.how = AttemptFailure::kLost;
    error_ = HttpError::kWorkerClosed;
  } else if (leg.result().status != 0) {
    failure.how = AttemptFailure::kStatus;
    failure.status = leg.result().error_event ? 500 : leg.result().status;
  } else {
    error_ = leg.request().outcome().error();
    if (is_late) {  // the limit of a transfer says nothing against another attempt
      failure.how = AttemptFailure::kStatus;
      failure.status = 504;
    }
  }
  retries_.Failed(failure, leg.request());
  side_->lost = side_->lost || retries_.WasLost();
}

void PairFailure::NoteDecode(AttemptFailure how, int status, HttpError error, std::string_view what) {
  side_ = &choice_.decode();
  what_ = what;
  error_ = error;
  thread_.telemetry.stages().PairFailed(side_->worker);
  retries_.Failed(how, status, side_->worker);
}

}  // namespace vllm_router
