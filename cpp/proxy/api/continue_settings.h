// ContinueSettings: what an operator sets of streams that go on at another worker and may change while the server runs. Part
// of Settings, so a request keeps those that it began with. Names, defaults and checks are those of
// python/vllm_router/settings/table.py, where each name begins with continue_; the memory is in FixedOptions.
#pragma once

#include <cstdint>

namespace vllm_router {

// verified: the request runs again, and what the client has must be the beginning of that run. tokens: that, or its token ids
// so far are the prompt of another request.
enum class ContinueStreams : uint8_t { kOff, kVerified, kTokens };

struct ContinueSettings {
  ContinueStreams streams = ContinueStreams::kOff;
  uint8_t max = 2;  // how often one stream goes on
  int64_t keepalive_ms =
      5'000;  // between comments to a client that waits for the rest of its stream; 0: none
  int64_t drain_ms =
      0;  // from the begin of a worker's drain until its streams are handed over; 0: they are not
  int64_t wait_ms =
      30'000;  // for a place at a worker, while all that may have the stream are full; 0: none is waited for
  int64_t stall_ms = 0;  // of a worker's silence until another one gets the request as well; 0: none does
  uint32_t rerun_tokens = 512;    // a longer stream goes on by its ids, if it can
  uint32_t max_tokens = 131'072;  // ids that are kept of one stream, its prompt's included
};

}  // namespace vllm_router
