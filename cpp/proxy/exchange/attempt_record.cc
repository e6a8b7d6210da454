#include "proxy/exchange/attempt_record.h"

#include <utility>

namespace vllm_router {

AttemptRecord::AttemptRecord(RequestInfo& info, std::shared_ptr<Worker> worker, AttemptPhase phase)
    : info_(info), attempt_{.worker = std::move(worker), .chosen_ns = info.chosen_ns, .phase = phase} {}

void AttemptRecord::Connected(int64_t now_ns, bool reused) {
  info_.connected_ns = now_ns;
  info_.reused = attempt_.reused = reused;
}

void AttemptRecord::Sending(int64_t now_ns) {
  ++info_.attempts;
  info_.sent_ns = now_ns;
  if (attempt_.sent_ns == 0) attempt_.sent_ns = now_ns;
}

void AttemptRecord::ReceivedHead(int64_t now_ns) { info_.responded_ns = attempt_.responded_ns = now_ns; }

void AttemptRecord::Failed(int64_t now_ns, std::string_view error) {
  attempt_.end_ns = now_ns;
  attempt_.error = error;
}

uint64_t AttemptRecord::SpanIn(RequestTrace& trace) {
  if (attempt_.span_id == 0) attempt_.span_id = trace.AttemptSpan(trace.attempts++);
  return attempt_.span_id;
}

void AttemptRecord::AddTo(RequestInfo* request, int64_t now_ns, std::string_view error) {
  if (std::exchange(added_, true)) return;
  if (attempt_.end_ns == 0) attempt_.end_ns = now_ns;
  if (attempt_.error.empty()) attempt_.error = error;
  request->attempts_made.push_back(std::move(attempt_));  // which leaves the times here
}

void AttemptRecord::AddRelayedTo(RequestInfo* request, int64_t now_ns) {
  if (attempt_.first_body_ns == 0) attempt_.first_body_ns = request->first_body_ns;
  const bool is_cut = request->ended_early();
  const std::string_view why = request->error.empty() ? ExchangeEndName(request->end) : request->error;
  AddTo(request, now_ns, is_cut ? why : std::string_view());
}

}  // namespace vllm_router
