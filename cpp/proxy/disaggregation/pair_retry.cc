#include "proxy/disaggregation/pair_retry.h"

#include <utility>

#include "net/event_loop.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

PairRetry::PairRetry(IoThread& thread, const Settings& settings, RequestInfo& info, PairChoice& choice)
    : thread_(thread),
      info_(info),
      choice_(choice),
      retries_(thread, settings, info),
      failure_(thread, choice, retries_) {}

// What failed is excluded by its worker's id, for the rest of the request. Where decode may serve alone and no prefill
// worker was reached, it does so at once if there is no other, and instead of an error if there may be no retry.
Task<std::optional<PairRetry::Step>> PairRetry::Next(const PdMachine& machine) {
  if (!machine.choosing()) co_return std::nullopt;
  const PdRetry retry = machine.retry();
  const bool is_local = retry.next == PdAttemptKind::kLocal;
  const bool unreached = choice_.MayServeAlone() && failure_.IsPrefillUnreached();
  choice_.Exclude(retry);
  const bool is_last = unreached && !is_local && !choice_.prefill().choice.AnyUntried();
  std::optional<int64_t> pause;
  if (!is_last) pause = PauseBefore(retry);
  if (pause && *pause > 0) {
    Delay delay(thread_.loop);
    pause_ = &delay;
    co_await delay.For(*pause);
    pause_ = nullptr;
  }
  if (!machine.choosing()) co_return std::nullopt;
  if (pause && choice_.Choose(retry)) {
    if (is_local && unreached) RecordAlone();
    co_return Step{.attempt = retry.next};
  }
  if (pause && choice_.ChooseOtherGroup(retry)) co_return Step{.attempt = PdAttemptKind::kPair};
  if (pause || (unreached && !is_local)) {
    no_other_pair_ = true;
    co_return Step{.event = {.type = PdEventType::kNoOtherPair, .p_unreached = unreached}};
  }
  co_return Step{.event = {.type = PdEventType::kNoRetry}};
}

// The request's record is as if no prefill worker had been chosen.
void PairRetry::RecordAlone() {
  PdInfo& pd = *info_.pd;
  pd.local = "prefill_loss";
  pd.prefill = nullptr;
  pd.prefill_end_ns = 0;
  pd.pair_id.clear();
}

// Another kind of attempt, since there was no other pair, is part of the retry that was granted.
std::optional<int64_t> PairRetry::PauseBefore(const PdRetry& retry) {
  if (std::exchange(no_other_pair_, false) || !retry.counted) return 0;
  const PairChoice::Side* const side = failure_.side();
  const std::optional<int64_t> pause = retries_.Next(side == nullptr || side->choice.AnyUntried());
  if (pause) thread_.telemetry.stages().PairRetried(failure_.what());
  return pause;
}

void PairRetry::Cancel() {
  if (pause_ != nullptr) pause_->Cancel();
}

bool PairRetry::IsDecodeUnreached() const {
  return failure_.is_of_decode() && retries_.failure().how == AttemptFailure::kConnect;
}

}  // namespace vllm_router
