// KvBatch: what an engine's KV cache stored and dropped in one step, decoded from the payload that vLLM
// and SGLang publish (msgpack, over ZeroMQ).
//
//   93 cb 3ff8000000000000 91 97 ab "BlockStored" ..     [1.5, [["BlockStored", [hash], parent, [ids], 4, ..]], rank]
//
//   batch   array [ts, events, rank?], or map {ts, events, data_parallel_rank?}      each batch chooses one,
//   event   array [tag, fields ..],    or map {"type": tag, field: value ..}         and each event too
//
// Both forms of both are read, in any mixture: vLLM up to 0.23 and SGLang send arrays of arrays, vLLM
// 0.24 and later arrays of maps. Fields that are absent have their defaults; unknown ones are skipped.
//
// An event with a field of a wrong type is skipped by its structure and counted, so the rest of the batch
// still applies. A batch whose structure is broken yields nothing. No size is trusted before the bytes
// are there, so a payload costs at most its own length.
//
// Cost: about 1 ns per token id and 4 ns per hash; no allocation once the vectors have grown. A KvBatch
// views the payload it was decoded from. One thread. The formats: vllm/distributed/kv_events.py and
// sglang/srt/disaggregation/kv_events.py.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace vllm_router {

// An engine's name for a block: opaque here. An integer's bits; of bytes the last 8, big-endian, as vLLM
// makes its integers of them; of text its XXH3-64.
using EngineHash = uint64_t;

enum class KvEventKind : uint8_t { kStored, kRemoved, kCleared };

// Where the engine keeps the blocks of an event.
enum class KvMedium : uint8_t {
  kGpu,       // also an event that names none
  kHost,      // the worker's main memory
  kExternal,  // storage of this worker's own
  kPool,      // storage that every worker reads
  kUnknown,   // a name that is not in the table
};
KvMedium KvMediumByName(std::string_view name);  // case-insensitive
std::string_view KvMediumName(KvMedium medium);

// The attention that a group of layers uses, as the event names it.
enum class KvSpecKind : uint8_t { kUnnamed, kFull, kOther };

struct KvEvent {
  KvEventKind kind = KvEventKind::kStored;
  KvMedium medium = KvMedium::kGpu;
  KvSpecKind spec_kind = KvSpecKind::kUnnamed;
  bool is_remote = false;  // of another worker: locality is not LOCAL
  bool is_bigram = false;  // tokens were pairs (EAGLE); their first ids are kept
  uint16_t group = 0;
  uint32_t block_size = 0;  // tokens; 0: not told
  std::optional<EngineHash> parent;
  std::optional<int64_t> lora_id;
  std::string_view lora_name;
  std::string_view cache_salt;
  // Ranges of the batch's vectors.
  uint32_t hash_begin = 0;
  uint32_t hash_count = 0;
  uint32_t token_begin = 0;
  uint32_t token_count = 0;
  uint32_t extra_begin = 0;
  uint32_t extra_count = 0;
};

// What a block's hash depends on besides its tokens: an adapter's name, a salt, a picture.
struct KvExtraKey {
  enum class Kind : uint8_t { kName, kMedia, kBytes };

  uint32_t block = 0;  // of the event
  Kind kind = Kind::kName;
  std::string_view name;  // or identifier, or bytes
  int64_t offset = 0;     // of media: its place in the block's tokens, or in the prompt
};

// Why an event was skipped while decoding.
enum class KvDrop : uint8_t { kMalformedEvent, kUnknownTag };
inline constexpr int kKvDropCount = 2;
std::string_view KvDropName(KvDrop drop);

struct KvBatch {
  std::span<const EngineHash> HashesOf(const KvEvent& event) const {
    return std::span(hashes).subspan(event.hash_begin, event.hash_count);
  }
  std::span<const uint32_t> TokensOf(const KvEvent& event) const {
    return std::span(tokens).subspan(event.token_begin, event.token_count);
  }
  std::span<const KvExtraKey> ExtrasOf(const KvEvent& event) const {
    return std::span(extras).subspan(event.extra_begin, event.extra_count);
  }
  void Clear();

  double seconds = 0;           // since 1970, when the engine made it; 0: not told
  std::optional<int64_t> rank;  // data-parallel
  std::vector<KvEvent> events;
  std::vector<EngineHash> hashes;
  std::vector<uint32_t> tokens;
  std::vector<KvExtraKey> extras;
  std::array<uint32_t, kKvDropCount> dropped{};
};

// The data-parallel rank of a batch, at the cost of skipping its events; missing: not told. False: the payload's
// outer structure is no batch's.
bool ReadBatchRank(std::span<const uint8_t> payload, std::optional<int64_t>* rank);

// Replaces what is in `batch`. False: the payload is no batch, and `batch` is empty.
bool DecodeKvBatch(std::span<const uint8_t> payload, KvBatch* batch);

}  // namespace vllm_router
