#include "proxy/continuation/stream_record.h"

#include "proxy/continuation/thread_continuation.h"

namespace vllm_router {

void StreamRecord::AddTo(
    RequestInfo* info, const ContinueMachine& machine, int64_t gap_ns, ThreadContinuation* thread) const {
  if (!first_cut) return;
  const bool is_cut = info->end == ExchangeEnd::kWorkerGone || info->end == ExchangeEnd::kWorkerError ||
                      machine.state() == ContinueState::kCut;
  const ContinueCut known = machine.why() != ContinueCut::kNone ? machine.why() : ContinueCut::kNotEligible;
  const std::string_view why = !cut_why.empty() ? cut_why : ContinueCutName(known);
  info->continued = std::make_unique<ContinuedInfo>();
  *info->continued = {
      .first_worker = first_worker,
      .why = StreamCutName(*first_cut),
      .method = times != 0 ? ContinueMethodName(method) : std::string_view(),
      .end = is_cut                ? why
             : info->ended_early() ? std::string_view()
                                   : std::string_view("whole"),
      .times = times,
      .tokens = tokens,
      .gap_ns = gap_ns};
  if (is_cut) thread->cut.Add(why);
  if (times == 0) return;
  thread->continued[static_cast<size_t>(*first_cut)][static_cast<size_t>(method)].Add();
  thread->gap.Add(gap_ns);
}

}  // namespace vllm_router
