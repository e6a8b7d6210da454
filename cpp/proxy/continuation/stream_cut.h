// StreamCut: why a stream that has begun does not go on by itself, and what that is for its ContinueMachine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "continuation/continue_machine.h"

namespace vllm_router {

enum class StreamCut : uint8_t {
  kLost,         // the connection ended, or its framing is broken
  kServerError,  // its last event says so
  kAborted,      // the engine has ended the generation; a loss only if its worker dies
  kDead,         // its worker was found dead
  kIdle,         // --stream-idle-timeout-secs
  kDrained,      // the drain's time is over, or that of --continue-drain-secs
  kStalled,      // --continue-stall-secs, and another worker was faster than its next word
};
inline constexpr size_t kStreamCuts = 7;
std::string_view StreamCutName(StreamCut cut);  // lost, server_error …
ContinueEventType EventOf(StreamCut cut);
// That by which a stream is handed over.
ContinueMethods RerunAlone();

}  // namespace vllm_router
