// PrefixEvent: what a worker tells of one prefix of its KV cache, from the type and the data of an event of
// its SSE stream (http/sse_reader.h).
//
//   event: cache_created
//   data: {"event":"cache_created","prefix_hash":"542e8d85…","token_count":2048}
//
// The field `event:` names the kind; the member "event" does where the field is absent. "prefix_hash" is the
// digest of a prefix, 64 hexadecimal digits; a cache_purged without one is about the whole cache.
// "token_count" may be absent: as many as were told before.
//
// What an event does to the table depends on PrefixTableOptions::offloading:
//
//                                   off       offloads   evictions
//   cache_created, cache_reloaded   GPU       GPU        GPU
//   cache_offloaded                 removed   storage    storage
//   cache_evicted                   removed   removed    storage
//   cache_purged                    removed   removed    removed
//
// Cost: a JSON parse, about 1 us. Pure but for the table; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "hashing/sha256.h"
#include "index/prefix_table.h"

namespace vllm_router {

struct PrefixEvent {
  enum class Kind : uint8_t { kCreated, kEvicted, kOffloaded, kReloaded, kPurged };

  Kind kind = Kind::kCreated;
  std::optional<Digest256> prefix;  // nullopt: all of the worker's; of kPurged only
  std::optional<uint32_t> tokens;
};

// An event, or what is wrong with it; that completes "an event …" and has nothing of its data.
struct PrefixEventOrProblem {
  std::optional<PrefixEvent> event;
  std::string_view problem = {};
};
PrefixEventOrProblem ReadPrefixEvent(std::string_view type, std::string_view data);

// True for the kinds that tell of a prefix on the GPU.
bool IsOnGpu(PrefixEvent::Kind kind);

// False: the worker has left, and nothing changed. `forgotten`: gets the prefixes that an event about the whole
// cache removed.
bool ApplyPrefixEvent(
    const PrefixEvent& event, WorkerId worker, int64_t now_ns, PrefixTable* table,
    std::vector<Digest256>* forgotten = nullptr);

}  // namespace vllm_router
