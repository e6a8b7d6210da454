// TrtllmReader: what a TensorRT-LLM engine's KV cache stored, moved and dropped since the last poll, from the
// response of POST /kv_cache_events. Each event has a number of its own, counted per attention data-parallel
// rank.
//
//   [{"event_id":7,"window_size":4096,"data":{"type":"stored","parent_hash":null,"blocks":[
//       {"type":"stored_block","block_hash":91,"tokens":[{"token_id":1,"token_extra_id":0},..],"cache_level":0}]}},
//    {"event_id":8,..,"data":{"type":"updated","block_hash":91,"cache_level":{"old_value":0,"new_value":1}}}]
//
//   created   one batch without events; the capacity of the GPU cache
//   stored    kStored, one for each tier: cache_level 0 is the GPU, 1 is host memory, others are unknown
//   removed   kRemoved on the GPU, although the engine drops the blocks on every tier
//   updated   with another cache_level: kStored without tokens there, kRemoved from before, in one batch
//
// A block with fewer tokens than those before it is the end of a prompt that fills no block, so it and what
// follows it are left out. Tokens of pictures, and their keys, are names of media. Absent and null are the same.
//
// An event with a value of a wrong type is skipped and counted; a response that is no JSON array yields nothing.
// Cost: 5 ns per byte, applying included, and about five times the response in memory until the next one. One
// thread. The format: KVCacheEventSerializer in tensorrt_llm/_utils.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "events/kv_event.h"
#include "events/kv_source.h"

namespace vllm_router {

struct TrtllmEvent {
  enum class Kind : uint8_t { kNone, kCreated, kStored, kRemoved, kUpdated };

  Kind kind = Kind::kNone;         // kNone: it is skipped; see batch.dropped
  std::optional<uint64_t> number;  // below 2^63; nullopt: it cannot be told whose event this is
  uint32_t rank = 0;               // below kMaxKvRanks
  int64_t window = 0;              // tokens that the attention of the block's layers reaches; 0: not told
  uint64_t gpu_blocks = 0;         // kCreated: the capacity; 0: not told
  uint32_t block_size = 0;         // kStored: tokens of the first block
  uint32_t full_blocks = 0;        // kStored: those in the batch
  uint32_t partial_blocks = 0;     // kStored: those that were left out
  KvBatch batch;                   // views the reader's memory
};

class TrtllmReader {
 public:
  // The memory of a longer response is given back with the next one.
  static constexpr size_t kKeptBytes = size_t{1} << 20;

  TrtllmReader();
  ~TrtllmReader();

  // False: this is no JSON array. Until the next call the events view the reader's memory.
  bool Open(std::string_view response);
  // Replaces what is in `event`. False: there are no more.
  bool Next(TrtllmEvent* event);

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace vllm_router
