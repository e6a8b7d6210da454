// ROUTER_CHECK(condition, "sentence"): ends the process when an internal invariant is broken. It is for
// bugs of this program only; input of a user, a worker or the network that is wrong yields a Status.
#pragma once

#define ROUTER_CHECK(condition, sentence)              \
  (static_cast<bool>(condition) ? static_cast<void>(0) \
                                : ::vllm_router::CheckFailed(#condition, sentence, __FILE__, __LINE__))

namespace vllm_router {

[[noreturn]] void CheckFailed(const char* condition, const char* sentence, const char* file, int line);

}  // namespace vllm_router
