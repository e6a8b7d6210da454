#include "proxy/continuation/continued_stream.h"

namespace vllm_router {

ContinueEventType EventOf(StreamCut cut) {
  switch (cut) {
    case StreamCut::kLost:
    case StreamCut::kServerError:
    case StreamCut::kDead:
      return ContinueEventType::kOldLost;
    case StreamCut::kAborted:
      return ContinueEventType::kOldAborted;
    case StreamCut::kIdle:
    case StreamCut::kDrained:
      return ContinueEventType::kOldTimeout;
  }
  return ContinueEventType::kOldLost;
}

}  // namespace vllm_router
