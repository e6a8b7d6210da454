// Payloads of KV events: whatever comes, what is decoded lies inside the payload and its ranges inside the
// batch; a payload costs no more elements than it has bytes; and its rank is the same without its events.
#include "events/kv_event.h"
#include "fuzz.h"

namespace vllm_router {
namespace {

void CheckEvent(const KvEvent& event, const KvBatch& batch, std::string_view payload) {
  FUZZ_CHECK(event.hash_begin + event.hash_count <= batch.hashes.size());
  FUZZ_CHECK(event.token_begin + event.token_count <= batch.tokens.size());
  FUZZ_CHECK(event.extra_begin + event.extra_count <= batch.extras.size());
  FUZZ_CHECK(event.kind == KvEventKind::kCleared || event.hash_count != 0);
  FUZZ_CHECK(event.block_size <= 4096);
  FUZZ_CHECK(Inside(event.lora_name, payload) && Inside(event.cache_salt, payload));
  for (const KvExtraKey& extra : batch.ExtrasOf(event)) FUZZ_CHECK(Inside(extra.name, payload));
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  static KvBatch batch;  // reused, as in the router
  const bool decoded = DecodeKvBatch({data, size}, &batch);
  uint64_t dropped = 0;
  for (const uint32_t count : batch.dropped) dropped += count;
  FUZZ_CHECK(
      decoded || (batch.events.empty() && batch.hashes.empty() && batch.tokens.empty() && dropped == 0));
  FUZZ_CHECK(
      batch.events.size() + batch.hashes.size() + batch.tokens.size() + batch.extras.size() + dropped <=
      size);
  std::optional<int64_t> rank;
  FUZZ_CHECK(!decoded || (ReadBatchRank({data, size}, &rank) && rank == batch.rank));
  for (const KvEvent& event : batch.events) CheckEvent(event, batch, AsText(data, size));
  return 0;
}
