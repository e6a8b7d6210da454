// KvPushCall: the body of POST /admin/kv-events/push. JSON, or the same map in MessagePack, in which hashes
// may also be bytes:
//
//   {"worker": "http://gpu-0:8000", "seq": 12, "model": "llama", "events": [{"type": "BlockRemoved", …}]}
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

struct KvPushCall {
  std::string worker;  // URL
  uint32_t rank = 0;
  std::optional<uint64_t> number;
  bool reset = false;
  std::string model;
  std::string payload;  // MessagePack that DecodeKvBatch reads
};

// InvalidArgument names the member and what it must be.
StatusOr<KvPushCall> ReadKvPushCall(std::string_view body);

}  // namespace vllm_router
