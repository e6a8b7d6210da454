#include "proxy/continuation/stream_cut.h"

#include <array>

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, kStreamCuts> kNames = {"lost", "server_error", "aborted", "dead",
                                                              "idle", "drained",      "stalled"};

}  // namespace

std::string_view StreamCutName(StreamCut cut) { return kNames[static_cast<size_t>(cut)]; }

ContinueEventType EventOf(StreamCut cut) {
  switch (cut) {
    case StreamCut::kLost:
    case StreamCut::kDead:
      return ContinueEventType::kOldLost;
    case StreamCut::kAborted:
      return ContinueEventType::kOldAborted;
    case StreamCut::kServerError:  // a response, and no loss
    case StreamCut::kIdle:
    case StreamCut::kDrained:
    case StreamCut::kStalled:
      return ContinueEventType::kOldTimeout;
  }
  return ContinueEventType::kOldLost;
}

ContinueMethods RerunAlone() {
  ContinueMethods methods;
  methods.Add(ContinueMethod::kRerun);
  return methods;
}

}  // namespace vllm_router
