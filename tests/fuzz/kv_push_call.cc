// A hostile push of KV events: whatever the bytes are, a call has a worker, and its payload is decoded or not,
// and applied within limits.
#include <boost/json.hpp>

#include <span>

#include "events/kv_event.h"
#include "events/kv_source.h"
#include "fuzz.h"
#include "proxy/events/kv_push_call.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const StatusOr<KvPushCall> call = ReadKvPushCall(AsText(data, size));
  FUZZ_CHECK(call.ok() || !call.status().message().empty());
  if (!call.ok()) return 0;
  FUZZ_CHECK(!call->worker.empty());
  FUZZ_CHECK(call->rank < kMaxKvRanks);
  // JSON of one byte, a digit and its comma for instance, is at most nine bytes of MessagePack.
  FUZZ_CHECK(call->payload.size() <= 9 * size);
  KvBatch batch;
  DecodeKvBatch(
      std::span(reinterpret_cast<const uint8_t*>(call->payload.data()), call->payload.size()), &batch);
  FUZZ_CHECK(batch.events.size() <= size);
  return 0;
}
