// What does the block index cost, and what do other designs? Each workload is made once and given to all of them in
// one run; equal labels say that they gave equal answers. `python benchmarks/block_index_table.py` prints one table.
//
// By default the sizes are small, to see that everything works; BLOCK_INDEX_BENCH=full takes those of the table.
#include "index/block_index.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "base/text.h"
#include "block_baselines.h"
#include "block_workload.h"
#include "index/block_cache_tracker.h"

namespace vllm_router::bench {
namespace {

bool IsFull() {
  const char* const size = std::getenv("BLOCK_INDEX_BENCH");
  return size != nullptr && std::string_view(size) == "full";
}

size_t HeapBytes() {
  const struct mallinfo2 info = mallinfo2();
  return info.uordblks + info.hblkhd;
}

uint64_t SignatureOf(const BlockMatches& matches) {
  uint64_t signature = 0;
  for (const BlockMatch& match : matches.entries())
    signature += Signature(static_cast<uint64_t>(match.owner), match.longest());
  return signature;
}

// The index with the baselines' interface. Refs are what an event source keeps: its map from the engine's hashes to
// refs is timed apart (`map_ticks`), since the baselines keep such maps inside.
class RunIndex {
 public:
  explicit RunIndex(uint32_t workers) : refs_of_(workers), refs_(1 << 16) {
    for (uint32_t i = 0; i < workers; ++i) owners_.push_back(index_.AddOwner().value());
  }

  void Store(
      uint32_t worker, uint64_t parent, const uint64_t* /*local*/, const uint64_t* chain, uint32_t blocks) {
    const uint64_t begin = Ticks();
    auto& known = refs_of_[worker];
    const auto found = known.find(parent);
    if (parent != 0 && found == known.end()) return;
    const BlockRef parent_ref = parent == 0 ? BlockRef() : found->second;
    const uint64_t looked_up = Ticks();
    index_.Insert(owners_[worker], Tier::kGpu, parent_ref, {chain, blocks}, refs_.data());
    const uint64_t inserted = Ticks();
    for (uint32_t i = 0; i < blocks; ++i) known[chain[i]] = refs_[i];
    map_ticks = looked_up - begin + Ticks() - inserted;
  }

  void Remove(uint32_t worker, const uint64_t* chain, uint32_t blocks) {
    const uint64_t begin = Ticks();
    auto& known = refs_of_[worker];
    size_t count = 0;
    for (uint32_t i = 0; i < blocks; ++i) {
      const auto found = known.find(chain[i]);
      if (found == known.end()) continue;
      refs_[count++] = found->second;
      known.erase(found);
    }
    map_ticks = Ticks() - begin;
    index_.Remove(owners_[worker], Tier::kGpu, std::span<const BlockRef>(refs_.data(), count));
  }

  void Match(const uint64_t* /*local*/, const uint64_t* chain, uint32_t blocks) {
    index_.Match({chain, blocks}, &matches_);
  }
  uint64_t signature() const { return SignatureOf(matches_); }

  void RemoveWorker(uint32_t worker) { index_.RemoveOwner(owners_[worker]); }
  BlockIndex& index() { return index_; }

  uint64_t map_ticks = 0;  // of the last Store or Remove

 private:
  BlockIndex index_;
  BlockMatches matches_;
  std::vector<WorkerSlot> owners_;
  std::vector<absl::flat_hash_map<uint64_t, BlockRef>> refs_of_;
  std::vector<BlockRef> refs_;
};

template <typename Structure>
uint64_t MapTicks(const Structure& structure) {
  if constexpr (requires { structure.map_ticks; }) return structure.map_ticks;
  return 0;
}

// ---- Chats: events of 64 engines -------------------------------------------------------------------------------------

struct ChatEvents {
  ChatEvents(size_t requests, uint32_t workers, size_t blocks)
      : chats(requests, workers), events(chats, workers, blocks) {}
  Chats chats;
  Events events;
};

const ChatEvents& SharedChats(uint32_t workers, size_t blocks, size_t requests) {
  static std::map<std::pair<size_t, size_t>, std::unique_ptr<ChatEvents>> made;
  auto& one = made[{blocks, requests}];
  if (one == nullptr) one = std::make_unique<ChatEvents>(requests, workers, blocks);
  return *one;
}

constexpr uint32_t kChatWorkers = 64;

template <typename Structure>
void BM_Chats(benchmark::State& state) {
  const auto blocks = static_cast<size_t>(state.range(0));
  const auto& [chats, events] = SharedChats(kChatWorkers, blocks, static_cast<size_t>(state.range(1)));
  std::vector<uint64_t> local(1 << 16);
  std::vector<uint64_t> chain(1 << 16);
  NsPerTick();
  for (auto _ : state) {
    const size_t heap = HeapBytes();
    auto structure = std::make_unique<Structure>(kChatWorkers);
    Times times[3];
    Times alone[3];  // without the map of a run index's caller
    uint64_t signature = 0;
    for (size_t i = 0; i < events.events.size(); ++i) {
      const Events::Event& event = events.events[i];
      const bool removed = event.kind == Events::Kind::kRemoved;
      // A request's hashes have just been made, so they are hot.
      const uint64_t* const from = (removed ? events.removed : chats.chained()).data() + event.begin;
      std::copy_n(from, event.blocks, chain.data());
      if (!removed) std::copy_n(chats.local().data() + event.begin, event.blocks, local.data());
      const bool counts = i >= events.events.size() / 2;
      uint64_t map_ticks = 0;
      const uint64_t begin = Ticks();
      switch (event.kind) {
        case Events::Kind::kMatch:
          structure->Match(local.data(), chain.data(), event.blocks);
          break;
        case Events::Kind::kStored:
          structure->Store(event.worker, event.parent, local.data(), chain.data(), event.blocks);
          map_ticks = MapTicks(*structure);
          break;
        case Events::Kind::kRemoved:
          structure->Remove(event.worker, chain.data(), event.blocks);
          map_ticks = MapTicks(*structure);
          break;
      }
      const uint64_t ticks = Ticks() - begin;
      if (!counts) continue;
      if (event.kind == Events::Kind::kMatch) signature += structure->signature();
      times[static_cast<int>(event.kind)].Add(ticks, event.blocks);
      alone[static_cast<int>(event.kind)].Add(ticks - std::min(ticks, map_ticks), event.blocks);
    }
    size_t bytes = HeapBytes() - heap;
    if constexpr (requires { structure->index(); }) {
      const BlockIndexStats stats = structure->index().stats();
      bytes = stats.bytes;
      state.counters["pairs"] = static_cast<double>(stats.pairs);
    }
    state.counters["match_ns"] = times[0].NsPerBlock();
    state.counters["match_p99_us"] = times[0].Quantile(0.99) / 1e3;
    state.counters["stored_ns"] = alone[1].NsPerBlock();
    state.counters["stored_map_ns"] = times[1].NsPerBlock();
    state.counters["removed_ns"] = alone[2].NsPerBlock();
    state.counters["removed_map_ns"] = times[2].NsPerBlock();
    state.counters["bytes_per_pair"] =
        static_cast<double>(bytes) / static_cast<double>(kChatWorkers * blocks);
    const uint64_t before = Ticks();
    structure->RemoveWorker(0);
    state.counters["remove_worker_us"] = static_cast<double>(Ticks() - before) * NsPerTick() / 1e3;
    if constexpr (requires { structure->index(); }) {
      double longest = 0;
      for (bool more = true; more;) {
        const uint64_t begin = Ticks();
        more = structure->index().Sweep(64);
        longest = std::max(longest, static_cast<double>(Ticks() - begin) * NsPerTick() / 1e3);
      }
      state.counters["longest_sweep_us"] = longest;
    }
    state.SetLabel("checksum " + Hex16(signature));
    state.PauseTiming();
    structure.reset();
    malloc_trim(0);
    state.ResumeTiming();
  }
}

// ---- Chats: recorded, with eviction ----------------------------------------------------------------------------------

// The maps with a list per worker for the order of use.
class MapsWithLists {
 public:
  MapsWithLists(uint32_t workers, size_t capacity) : maps_(workers), recency_(workers), capacity_(capacity) {}
  void Match(const uint64_t* chain, uint32_t blocks) { maps_.Match(nullptr, chain, blocks); }
  uint64_t signature() const { return maps_.signature(); }
  void Record(uint32_t worker, const uint64_t* chain, uint32_t blocks) {
    maps_.Store(worker, 0, nullptr, chain, blocks);
    auto& [order, place] = recency_[worker];
    for (uint32_t i = blocks; i-- > 0;) {
      if (const auto found = place.find(chain[i]); found != place.end()) {
        order.splice(order.begin(), order, found->second);
      } else {
        order.push_front(chain[i]);
        place[chain[i]] = order.begin();
      }
    }
    while (place.size() > capacity_) {
      maps_.Remove(worker, &order.back(), 1);
      place.erase(order.back());
      order.pop_back();
    }
  }

 private:
  struct Recency {
    std::list<uint64_t> order;
    std::unordered_map<uint64_t, std::list<uint64_t>::iterator> place;
  };
  MapOfMaps maps_;
  std::vector<Recency> recency_;
  size_t capacity_;
};

class Tracker {
 public:
  Tracker(uint32_t workers, size_t capacity) : tracker_({.max_blocks_per_worker = capacity}) {
    for (uint32_t i = 0; i < workers; ++i) owners_.push_back(tracker_.AddWorker().value());
  }
  void Match(const uint64_t* chain, uint32_t blocks) { tracker_.Match({chain, blocks}, &matches_); }
  uint64_t signature() const { return SignatureOf(matches_); }
  void Record(uint32_t worker, const uint64_t* chain, uint32_t blocks) {
    tracker_.Record(owners_[worker], {chain, blocks});
  }

 private:
  BlockCacheTracker tracker_;
  BlockMatches matches_;
  std::vector<WorkerSlot> owners_;
};

template <typename Structure>
void BM_Record(benchmark::State& state) {
  const auto blocks = static_cast<size_t>(state.range(0));
  const Chats& chats = SharedChats(kChatWorkers, blocks, static_cast<size_t>(state.range(1))).chats;
  std::vector<uint64_t> chain(1 << 16);
  for (auto _ : state) {
    Structure structure(kChatWorkers, blocks);
    Times match;
    Times record;
    uint64_t signature = 0;
    size_t number = 0;
    for (const Chats::Request& request : chats.requests()) {
      std::copy_n(chats.chained().data() + request.begin, request.total, chain.data());
      const uint64_t begin = Ticks();
      structure.Match(chain.data(), request.prompt);
      const uint64_t matched = Ticks();
      structure.Record(request.worker, chain.data(), request.total);
      const uint64_t recorded = Ticks();
      if (number++ < chats.requests().size() / 2) continue;
      signature += structure.signature();
      match.Add(matched - begin, request.prompt);
      record.Add(recorded - matched, request.total);
    }
    state.counters["match_ns"] = match.NsPerBlock();
    state.counters["record_ns"] = record.NsPerBlock();
    state.counters["record_p99_us"] = record.Quantile(0.99) / 1e3;
    state.counters["longest_us"] = record.Quantile(1) / 1e3;
    state.SetLabel("checksum " + Hex16(signature));
  }
}

// ---- Matches alone ---------------------------------------------------------------------------------------------------

// Chains of `length` blocks with 8 holders each, half of whom hold a random part; queries agree for half of theirs.
template <typename Structure>
void BM_HalfHit(benchmark::State& state) {
  const auto length = static_cast<uint32_t>(state.range(0));
  const auto chains = static_cast<size_t>(state.range(1)) / (6 * length) + 1;
  Random random = SeededDice(7);
  auto structure = std::make_unique<Structure>(kChatWorkers);
  std::vector<uint64_t> local(chains * length);
  std::vector<uint64_t> chained(local.size());
  for (uint64_t& block : local) block = random.Next();
  for (size_t c = 0; c < chains; ++c) {
    Chain({local.data() + c * length, length}, chained.data() + c * length);
    const auto first = static_cast<uint32_t>(random.Below(kChatWorkers));
    for (uint32_t k = 0; k < 8; ++k) {
      const auto part = k < 4 ? length : static_cast<uint32_t>(1 + random.Below(length));
      const uint32_t worker = (first + 7 * k) % kChatWorkers;
      structure->Store(worker, 0, local.data() + c * length, chained.data() + c * length, part);
    }
  }
  std::vector<uint64_t> asked(length);
  std::vector<uint64_t> asked_chain(length);
  uint64_t signature = 0;
  Times times;
  for (auto _ : state) {
    for (int i = 0; i < (IsFull() ? 20'000 : 200); ++i) {
      const size_t c = random.Below(chains);
      std::copy_n(local.data() + c * length, length / 2, asked.data());
      std::generate(asked.begin() + length / 2, asked.end(), [&] { return random.Next(); });
      Chain(asked, asked_chain.data());
      const uint64_t begin = Ticks();
      structure->Match(asked.data(), asked_chain.data(), length);
      times.Add(Ticks() - begin, length);
      signature += structure->signature();
    }
  }
  state.counters["match_ns"] = times.NsPerBlock();
  state.SetLabel("checksum " + Hex16(signature));
}

// A prefix of 256 blocks held by everybody, and 64 blocks that one worker holds behind it.
template <typename Structure>
void BM_HotPrefix(benchmark::State& state) {
  const auto workers = static_cast<uint32_t>(state.range(0));
  constexpr uint32_t kPrefix = 256;
  constexpr uint32_t kLength = 320;
  Random random = SeededDice(1);
  auto structure = std::make_unique<Structure>(workers);
  std::vector<uint64_t> local(kLength);
  std::vector<uint64_t> chain(kLength);
  for (uint64_t& block : local) block = random.Next();
  for (uint32_t i = 0; i < 2 * workers; ++i) {
    for (uint32_t k = kPrefix; k < kLength; ++k) local[k] = random.Next();
    Chain(local, chain.data());
    structure->Store(i % workers, 0, local.data(), chain.data(), kLength);
  }
  uint64_t signature = 0;
  Times times;
  for (auto _ : state) {
    for (int i = 0; i < 1000; ++i) {
      const uint64_t begin = Ticks();
      structure->Match(local.data(), chain.data(), kLength);
      times.Add(Ticks() - begin, kLength);
      signature += structure->signature();
    }
  }
  state.counters["match_us"] = times.Quantile(0.5) / 1e3;
  state.SetLabel("checksum " + Hex16(signature));
}

// ---- Events of one block ---------------------------------------------------------------------------------------------

// 20,000 sequences of 32 blocks that grow by one block at a time, in random order.
template <typename Structure>
void BM_Decode(benchmark::State& state) {
  const auto sequences = static_cast<size_t>(state.range(0));
  struct Sequence {
    uint64_t parent;
    uint32_t worker;
  };
  for (auto _ : state) {
    Random random = SeededDice(5);
    auto structure = std::make_unique<Structure>(kChatWorkers);
    std::vector<Sequence> all(sequences);
    std::vector<uint64_t> local(32);
    std::vector<uint64_t> chain(32);
    for (Sequence& sequence : all) {
      for (uint64_t& block : local) block = random.Next();
      Chain(local, chain.data());
      sequence = {chain.back(), static_cast<uint32_t>(random.Below(kChatWorkers))};
      structure->Store(sequence.worker, 0, local.data(), chain.data(), 32);
    }
    const size_t events = 20 * sequences;
    Times times;
    Times alone;  // without the map of a run index's caller
    for (size_t i = 0; i < events; ++i) {
      Sequence& sequence = all[random.Below(sequences)];
      const uint64_t block = random.Next();
      const uint64_t hash = Mix(sequence.parent ^ block) | 1;
      const uint64_t begin = Ticks();
      structure->Store(sequence.worker, sequence.parent, &block, &hash, 1);
      const uint64_t ticks = Ticks() - begin;
      times.Add(ticks, 1);
      alone.Add(ticks - std::min(ticks, MapTicks(*structure)), 1);
      sequence.parent = hash;
    }
    state.counters["event_ns"] = alone.NsPerBlock();
    state.counters["event_map_ns"] = times.NsPerBlock();
  }
}

// ---- Readers beside a writer -----------------------------------------------------------------------------------------

// Quantiles of a match by `readers` threads, alone and while a writer stores and removes as fast as it can.
void BM_Readers(benchmark::State& state) {
  const auto readers = static_cast<int>(state.range(0));
  const auto& [chats, events] = SharedChats(kChatWorkers, 2000, 20'000);
  for (auto _ : state) {
    RunIndex structure(kChatWorkers);
    std::atomic<bool> stop{false};
    // After the first round the log starts from another state than it was written for; what no longer fits is skipped.
    const auto write = [&](bool once) {
      do {
        for (const Events::Event& event : events.events) {
          if (stop) return;
          if (event.kind == Events::Kind::kStored) {
            structure.Store(
                event.worker, event.parent, nullptr, chats.chained().data() + event.begin, event.blocks);
          } else if (event.kind == Events::Kind::kRemoved) {
            structure.Remove(event.worker, events.removed.data() + event.begin, event.blocks);
          }
        }
      } while (!once);
    };
    write(true);
    const auto measure = [&](bool with_writer) {
      stop = false;
      std::jthread writer;
      if (with_writer) writer = std::jthread([&] { write(false); });
      std::vector<std::vector<float>> ns(static_cast<size_t>(readers));
      {
        std::vector<std::jthread> threads;
        for (int r = 0; r < readers; ++r) {
          threads.emplace_back([&, r] {
            BlockMatches matches;
            Random random(static_cast<uint64_t>(r) + 1);
            auto& own = ns[static_cast<size_t>(r)];
            for (int i = 0; i < 100'000; ++i) {
              const Chats::Request& request = chats.requests()[random.Below(chats.requests().size())];
              const uint64_t begin = Ticks();
              structure.index().Match({chats.chained().data() + request.begin, request.prompt}, &matches);
              own.push_back(static_cast<float>(Ticks() - begin));
            }
          });
        }
      }
      stop = true;
      std::vector<float> all;
      for (const auto& own : ns) all.insert(all.end(), own.begin(), own.end());
      std::sort(all.begin(), all.end());
      return std::pair(
          all[all.size() / 2] * NsPerTick() / 1e3, all[all.size() * 99 / 100] * NsPerTick() / 1e3);
    };
    const auto [idle_p50, idle_p99] = measure(false);
    const auto [busy_p50, busy_p99] = measure(true);
    state.counters["idle_p50_us"] = idle_p50;
    state.counters["idle_p99_us"] = idle_p99;
    state.counters["busy_p50_us"] = busy_p50;
    state.counters["busy_p99_us"] = busy_p99;
  }
}

// ---- Registration ----------------------------------------------------------------------------------------------------

template <typename Structure>
void Register(const std::string& structure, bool full) {
  const auto add = [&](const std::string& name, auto function, std::vector<std::string> names,
                       std::vector<std::vector<int64_t>> sizes) {
    for (const std::vector<int64_t>& size : sizes) {
      benchmark::RegisterBenchmark((name + "/" + structure).c_str(), function)
          ->ArgNames(names)
          ->Args(size)
          ->Iterations(1)
          ->Unit(benchmark::kMillisecond);
    }
  };
  const std::vector<std::string> chat_sizes = {"blocks", "requests"};
  const bool slow = structure == "map_of_maps" || structure == "block_tree" || structure == "positional";
  std::vector<std::vector<int64_t>> chats = {{1000, 3000}};
  if (full) chats = {{16'000, 200'000}};
  if (full && !slow) chats.push_back({160'000, 1'000'000});
  add("Chats", BM_Chats<Structure>, chat_sizes, chats);
  add("HalfHit", BM_HalfHit<Structure>, {"length", "pairs"},
      full ? std::vector<std::vector<int64_t>>{{64, 1'000'000}, {512, 1'000'000}, {4096, 1'000'000}}
           : std::vector<std::vector<int64_t>>{{64, 20'000}});
  add("HotPrefix", BM_HotPrefix<Structure>, {"workers"}, {{full ? 1024 : 64}});
  add("Decode", BM_Decode<Structure>, {"sequences"}, {{full ? 20'000 : 200}});
}

void RegisterAll() {
  const bool full = IsFull();
  Register<RunIndex>("run_index", full);
  Register<Positional>("positional", full);
  Register<BlockTree>("block_tree", full);
  Register<MapOfMaps>("map_of_maps", full);
  const std::vector<int64_t> size =
      full ? std::vector<int64_t>{16'000, 200'000} : std::vector<int64_t>{1000, 3000};
  const std::vector<std::string> names = {"blocks", "requests"};
  benchmark::RegisterBenchmark("Record/run_index", BM_Record<Tracker>)
      ->ArgNames(names)
      ->Args(size)
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("Record/map_of_maps", BM_Record<MapsWithLists>)
      ->ArgNames(names)
      ->Args(size)
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
  benchmark::RegisterBenchmark("Readers/run_index", BM_Readers)
      ->ArgName("readers")
      ->Arg(1)
      ->Arg(2)
      ->Iterations(1)
      ->Unit(benchmark::kMillisecond);
}

const bool registered = (RegisterAll(), true);

}  // namespace
}  // namespace vllm_router::bench
