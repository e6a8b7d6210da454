// StreamRecord: what the access log and the metrics say of a stream whose worker did not finish it. Belongs to one
// ContinuedStream. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "continuation/continue_machine.h"
#include "proxy/continuation/stream_cut.h"
#include "proxy/telemetry/request_info.h"

namespace vllm_router {

struct ThreadContinuation;
struct Worker;

struct StreamRecord {
  std::optional<StreamCut> first_cut;
  std::shared_ptr<Worker> first_worker;            // null: its stream was not cut
  std::string_view cut_why;                        // a reason that the machine does not know; usually empty
  uint32_t times = 0;                              // that the client got new text of another run
  ContinueMethod method = ContinueMethod::kRerun;  // the last one
  uint64_t tokens = 0;  // that were generated when it was used, if their number is known

  void Begin(StreamCut cut, const std::shared_ptr<Worker>& worker) {
    if (first_cut) return;
    first_cut = cut;
    first_worker = worker;
  }
  // The exchange is over. No effect if no worker failed to finish the stream.
  void AddTo(
      RequestInfo* info, const ContinueMachine& machine, int64_t gap_ns, ThreadContinuation* thread) const;
};

}  // namespace vllm_router
