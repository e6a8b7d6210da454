// What a block costs from the payload of a batch to the index: decoding, engine hash, chain, index, removal.
//
//   prefill   48 blocks in a stored event, as many removed, one event each, as vLLM sends them
//   decode    16 stored events of one block in a batch, as many removed
//
// Blocks of 16 tokens, a quarter of whose ids take five bytes. Each source's cache is full when the time begins,
// so that each block stored is one removed. A block-op is one block stored or removed.
#include <benchmark/benchmark.h>

#include <bit>
#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "events/event_applier.h"
#include "events/kv_event.h"
#include "index/reported_blocks.h"

namespace vllm_router {
namespace {

constexpr size_t kBlockTokens = 16;

// The few forms of msgpack that a batch has.
class Packer {
 public:
  void Array(size_t count) {
    bytes_.push_back('\xdc');
    Number(count, 2);
  }
  void Map(size_t count) { bytes_.push_back(static_cast<char>(0x80 | count)); }
  void Text(std::string_view text) {
    bytes_.push_back(static_cast<char>(0xa0 | text.size()));
    bytes_.append(text);
  }
  void Nil() { bytes_.push_back('\xc0'); }
  void Hash(uint64_t value) {
    bytes_.push_back('\xcf');
    Number(value, 8);
  }
  void Id(uint32_t value) {
    bytes_.push_back(value < 0x10000 ? '\xcd' : '\xce');
    Number(value, value < 0x10000 ? 2 : 4);
  }
  void Seconds(double value) {
    bytes_.push_back('\xcb');
    Number(std::bit_cast<uint64_t>(value), 8);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  void Number(uint64_t value, int size) {
    while (size-- > 0) bytes_.push_back(static_cast<char>(value >> (8 * size)));
  }
  std::string bytes_;
};

// One engine: prompts of `chain` blocks, stored `together` at a time, and a cache that evicts the oldest prompt.
class Engine {
 public:
  Engine(uint64_t seed, size_t blocks, size_t chain, size_t together)
      : random_(seed), capacity_(blocks), chain_(chain), together_(together) {}

  size_t resident() const { return resident_; }

  // A batch that stores a prompt's blocks, and removes those of the oldest while the cache is full.
  std::string Step() {
    std::vector<uint64_t> stored(chain_);
    for (uint64_t& hash : stored) hash = random_.Next();
    std::vector<uint64_t> removed;
    if (resident_ + chain_ > capacity_) {
      removed = std::move(prompts_.front());
      prompts_.pop_front();
      resident_ -= removed.size();
    }
    Packer packer;
    packer.Array(3);
    packer.Seconds(1.5);
    packer.Array(removed.size() + chain_ / together_);
    for (size_t i = removed.size(); i-- > 0;) {
      packer.Map(3);
      packer.Text("type");
      packer.Text("BlockRemoved");
      packer.Text("block_hashes");
      packer.Array(1);
      packer.Hash(removed[i]);
      packer.Text("medium");
      packer.Text("GPU");
    }
    for (size_t begin = 0; begin < chain_; begin += together_) {
      packer.Map(6);
      packer.Text("type");
      packer.Text("BlockStored");
      packer.Text("block_hashes");
      packer.Array(together_);
      for (size_t i = 0; i < together_; ++i) packer.Hash(stored[begin + i]);
      packer.Text("parent_block_hash");
      if (begin == 0) {
        packer.Nil();
      } else {
        packer.Hash(stored[begin - 1]);
      }
      packer.Text("token_ids");
      packer.Array(together_ * kBlockTokens);
      for (size_t i = 0; i < together_ * kBlockTokens; ++i) {
        const uint64_t draw = random_.Next();
        packer.Id(static_cast<uint32_t>(draw % 4 == 0 ? 0x10000 + draw % 100'000 : draw % 0x10000));
      }
      packer.Text("block_size");
      packer.Id(kBlockTokens);
      packer.Text("medium");
      packer.Text("GPU");
    }
    packer.Id(0);
    resident_ += chain_;
    prompts_.push_back(std::move(stored));
    return packer.Take();
  }

 private:
  Random random_;
  const size_t capacity_;
  const size_t chain_;
  const size_t together_;
  std::deque<std::vector<uint64_t>> prompts_;
  size_t resident_ = 0;
};

// sources, blocks of each cache, blocks of a stored event
void BM_Apply(benchmark::State& state) {
  const auto sources = static_cast<size_t>(state.range(0));
  const auto capacity = static_cast<size_t>(state.range(1));
  const auto together = static_cast<size_t>(state.range(2));
  const size_t chain = together == 1 ? 16 : together;
  const BlockHasher hasher(kBlockTokens);
  ReportedBlocks reported(hasher);
  std::vector<ReportedBlocks::Known> known;
  for (size_t i = 0; i < sources; ++i)
    known.push_back({static_cast<WorkerId>(i), static_cast<WorkerSlot>(i)});
  reported.SetWorkers(known);
  std::deque<Engine> engines;
  std::vector<std::unique_ptr<EventApplier>> appliers;
  for (size_t i = 0; i < sources; ++i) {
    engines.emplace_back(i + 1, capacity, chain, together);
    appliers.push_back(std::make_unique<EventApplier>(
        &reported, static_cast<WorkerId>(i), EventApplierOptions{.model = "m"}));
  }
  KvBatch batch;
  const auto apply = [&](size_t source, const std::string& payload) {
    if (!DecodeKvBatch({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}, &batch))
      state.SkipWithError("a batch was malformed");
    appliers[source]->Apply(batch, 0);
  };
  for (size_t i = 0; i < sources; ++i) {
    while (engines[i].resident() + chain <= capacity) apply(i, engines[i].Step());
  }
  constexpr size_t kPrepared = 4096;
  std::vector<std::string> payloads(kPrepared);
  size_t next = kPrepared;
  uint64_t ops = 0;
  for (auto _ : state) {
    if (next == kPrepared) {
      state.PauseTiming();
      for (size_t i = 0; i < kPrepared; ++i) payloads[i] = engines[i % sources].Step();
      next = 0;
      state.ResumeTiming();
    }
    apply(next % sources, payloads[next]);
    ++next;
    ops += 2 * chain;
  }
  size_t bytes = reported.index().stats().bytes;
  uint64_t pairs = 0;
  for (const auto& applier : appliers) {
    bytes += applier->bytes();
    pairs += applier->TierCounts()[0];
  }
  state.counters["ops/s"] = benchmark::Counter(static_cast<double>(ops), benchmark::Counter::kIsRate);
  state.counters["pairs"] = static_cast<double>(pairs);
  state.counters["bytes/pair"] = static_cast<double>(bytes) / static_cast<double>(pairs);
}
BENCHMARK(BM_Apply)
    ->ArgNames({"sources", "blocks", "together"})
    ->Args({8, 16'000, 48})
    ->Args({64, 16'000, 48})
    ->Args({64, 16'000, 1});

}  // namespace
}  // namespace vllm_router
