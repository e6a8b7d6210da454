// KvEngine: what an engine publishes of its KV cache under load, as payloads of batches in the shape of vLLM 0.32.
//
//   cache      p0 p1 p2 … p332        prompts of `chain` blocks, no two alike
//   Step()     [1.5, [removed p0, one event each block, the last first; stored p333], 0]
//   Clear()    [1.5, [AllBlocksCleared], 0]
//
// The oldest prompts are evicted as soon as there is no room for what comes. Blocks have 16 tokens, a quarter of
// whose ids take five bytes. Prompts are functions of their seeds, so whoever has the seed can match them.
// One thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "base/msgpack_writer.h"

namespace vllm_router::bench {

inline constexpr size_t kBlockTokens = 16;

struct KvEngineOptions {
  uint64_t seed = 1;
  size_t blocks = 16'000;  // of the cache
  size_t chain = 48;       // blocks of a prompt
  size_t together = 48;    // of those, in one stored event
  size_t prompts = 1;      // that begin in a batch
  // The last third of a prompt follows in the next batch, behind a parent that only the batch before names.
  bool late_tails = false;
};

struct KvPrompt {
  uint64_t seed;
  size_t blocks;  // in the cache
};

// As Random's stream, at any place and without its lock.
inline uint64_t KvDraw(uint64_t seed, uint64_t place) {
  uint64_t z = seed + (place + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline std::vector<uint32_t> TokensOf(uint64_t prompt, size_t begin, size_t end) {
  std::vector<uint32_t> tokens((end - begin) * kBlockTokens);
  for (size_t i = 0; i < tokens.size(); i += 2) {
    const uint64_t draw = KvDraw(prompt, begin * kBlockTokens + i);
    for (size_t half = 0; half < 2; ++half) {
      const uint64_t bits = draw >> (32 * half) & 0xffffffff;
      tokens[i + half] =
          static_cast<uint32_t>(bits % 4 == 0 ? 0x10000 + (bits >> 2) % 100'000 : (bits >> 2) % 0x10000);
    }
  }
  return tokens;
}

class KvEngine {
 public:
  explicit KvEngine(const KvEngineOptions& options) : options_(options), next_(KvDraw(options.seed, 0)) {}

  const KvEngineOptions& options() const { return options_; }
  size_t resident() const { return resident_; }                      // blocks
  const std::deque<KvPrompt>& prompts() const { return prompts_; }   // the oldest first
  const std::vector<KvPrompt>& evicted() const { return evicted_; }  // by the last Step()
  bool full() const { return !evicted_.empty(); }
  size_t last_ops() const { return last_ops_; }  // blocks stored or removed by the last Step() or Clear()

  std::string Step() {
    const size_t head = options_.late_tails ? options_.chain * 2 / 3 : options_.chain;
    const size_t tails = std::min(options_.late_tails ? options_.prompts : 0, prompts_.size());
    evicted_.clear();
    last_ops_ = 0;
    for (size_t coming = options_.prompts * options_.chain + tails * (options_.chain - head);
         prompts_.size() > tails && resident_ + coming > options_.blocks;) {
      evicted_.push_back(prompts_.front());
      resident_ -= prompts_.front().blocks;
      last_ops_ += prompts_.front().blocks;
      prompts_.pop_front();
    }
    MsgpackWriter writer;
    Begin(&writer, last_ops_ + tails + options_.prompts * (head / std::min(head, options_.together)));
    for (const KvPrompt& prompt : evicted_) {
      for (size_t i = prompt.blocks; i-- > 0;) Removed(HashOf(prompt.seed, i), &writer);
    }
    for (size_t i = prompts_.size() - tails; i < prompts_.size(); ++i) {
      Stored(prompts_[i].seed, head, options_.chain, &writer);
      prompts_[i].blocks = options_.chain;
    }
    for (size_t i = 0; i < options_.prompts; ++i) {
      const size_t together = std::min(head, options_.together);
      for (size_t begin = 0; begin < head; begin += together) Stored(next_, begin, begin + together, &writer);
      prompts_.push_back({next_, head});
      next_ = KvDraw(next_, 1);
    }
    writer.Unsigned(0);
    return writer.Take();
  }

  std::string Clear() {
    evicted_.assign(prompts_.begin(), prompts_.end());
    prompts_.clear();
    resident_ = last_ops_ = 0;
    MsgpackWriter writer;
    Begin(&writer, 1);
    writer.Map(1);
    writer.Text("type");
    writer.Text("AllBlocksCleared");
    writer.Unsigned(0);
    return writer.Take();
  }

  // It forgets its cache and says nothing of that.
  void Restart() {
    prompts_.clear();
    evicted_.clear();
    resident_ = last_ops_ = 0;
  }

 private:
  static uint64_t HashOf(uint64_t prompt, size_t block) { return KvDraw(~prompt, block); }

  static void Begin(MsgpackWriter* writer, size_t events) {
    writer->Array(3);
    writer->Float(1.5);
    writer->Array(events);
  }

  static void Removed(uint64_t hash, MsgpackWriter* writer) {
    writer->Map(3);
    writer->Text("type");
    writer->Text("BlockRemoved");
    writer->Text("block_hashes");
    writer->Array(1);
    writer->Unsigned(hash);
    writer->Text("medium");
    writer->Text("GPU");
  }

  void Stored(uint64_t prompt, size_t begin, size_t end, MsgpackWriter* writer) {
    writer->Map(6);
    writer->Text("type");
    writer->Text("BlockStored");
    writer->Text("block_hashes");
    writer->Array(end - begin);
    for (size_t i = begin; i < end; ++i) writer->Unsigned(HashOf(prompt, i));
    writer->Text("parent_block_hash");
    if (begin == 0) {
      writer->Nil();
    } else {
      writer->Unsigned(HashOf(prompt, begin - 1));
    }
    writer->Text("token_ids");
    const std::vector<uint32_t> tokens = TokensOf(prompt, begin, end);
    writer->Array(tokens.size());
    for (const uint32_t token : tokens) writer->Unsigned(token);
    writer->Text("block_size");
    writer->Unsigned(kBlockTokens);
    writer->Text("medium");
    writer->Text("GPU");
    resident_ += end - begin;
    last_ops_ += end - begin;
  }

  const KvEngineOptions options_;
  uint64_t next_;  // seed of the next prompt
  std::deque<KvPrompt> prompts_;
  std::vector<KvPrompt> evicted_;
  size_t resident_ = 0;
  size_t last_ops_ = 0;
};

}  // namespace vllm_router::bench
