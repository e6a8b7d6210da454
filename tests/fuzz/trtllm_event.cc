// Responses of /kv_cache_events: whatever comes, the ranges of an event lie inside its batch, what it names is
// within the limits, and a response costs no more elements than it has bytes.
#include "events/trtllm_event.h"
#include "fuzz.h"

namespace vllm_router {
namespace {

size_t Check(const KvBatch& batch) {
  for (const KvEvent& event : batch.events) {
    FUZZ_CHECK(event.hash_begin + event.hash_count <= batch.hashes.size());
    FUZZ_CHECK(event.token_begin + event.token_count <= batch.tokens.size());
    FUZZ_CHECK(event.extra_begin + event.extra_count <= batch.extras.size());
    FUZZ_CHECK(event.hash_count != 0 && event.kind != KvEventKind::kCleared);
    FUZZ_CHECK(event.token_count == event.hash_count * event.block_size);
    FUZZ_CHECK(event.block_size <= 4096);
    FUZZ_CHECK(event.lora_name.size() <= 1024 && event.cache_salt.size() <= 1024);
    for (const KvExtraKey& extra : batch.ExtrasOf(event))
      FUZZ_CHECK(extra.name.size() <= 1024 && extra.block < event.hash_count);
  }
  uint64_t dropped = 0;
  for (const uint32_t count : batch.dropped) dropped += count;
  FUZZ_CHECK(dropped <= 1 && (dropped == 0 || batch.events.empty()));
  return batch.hashes.size() + batch.tokens.size() + batch.extras.size() + 1;
}

}  // namespace
}  // namespace vllm_router

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  static TrtllmReader reader;  // reused, as in the router
  static TrtllmEvent event;
  if (!reader.Open(AsText(data, size))) {
    FUZZ_CHECK(!reader.Next(&event));
    return 0;
  }
  size_t elements = 0;
  while (reader.Next(&event)) {
    FUZZ_CHECK(event.rank < kMaxKvRanks);
    FUZZ_CHECK(!event.number || *event.number <= INT64_MAX);
    FUZZ_CHECK(
        (event.kind == TrtllmEvent::Kind::kNone) == (event.batch.dropped != decltype(event.batch.dropped){}));
    elements += Check(event.batch);
  }
  FUZZ_CHECK(elements <= size);
  return 0;
}
