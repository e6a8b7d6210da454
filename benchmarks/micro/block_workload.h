// Workloads of the block index benchmarks, seeded, made once and shared by every structure that is measured.
//
// Chats: 64 system prompts of 16 to 256 blocks, log-uniform, chosen by Zipf's law; 60 % of the chats begin with one,
// the others with 8 to 64 blocks of their own. A chat has 1 to 30 turns; a turn adds 1 to 16 blocks of the user and
// 2 to 32 of the answer. 20,000 chats are open at once, and 90 % of the requests go to their chat's own worker. Each
// worker is an engine with a block LRU cache, tail first; what it stores and removes are the events.
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/random.h"

namespace vllm_router::bench {

inline constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

inline uint64_t Mix(uint64_t x) { return Random(x).Next(); }
inline Random SeededDice(uint64_t seed) { return Random(seed * kGolden + 0x1234567); }
inline double Uniform(Random* random) { return static_cast<double>(random->Next() >> 11) * 0x1p-53; }

// A chain over names of blocks; any good hash will do, since nothing measured depends on which.
inline void Chain(std::span<const uint64_t> local, uint64_t* out) {
  uint64_t parent = 1337;
  for (const uint64_t block : local) *out++ = parent = Mix(parent ^ Mix(block)) | 1;
}

// What all structures must agree on: the sum over all answers, in no order.
inline uint64_t Signature(uint64_t worker, uint64_t depth) { return (worker + 1) * depth * kGolden; }

class Chats {
 public:
  struct Request {
    size_t begin;     // of its chat, in local() and chained()
    uint32_t prompt;  // blocks that are asked for
    uint32_t total;   // blocks with the answer
    uint32_t worker;
  };

  Chats(size_t requests, uint32_t workers) {
    Random random = SeededDice(1);
    MakeSystemPrompts(&random);
    struct Open {
      uint32_t chat;
      uint32_t turn;
    };
    std::vector<Open> open;
    for (int i = 0; i < 20'000; ++i) open.push_back({NewChat(&random), 0});
    Random places = SeededDice(99);
    while (requests_.size() < requests) {
      Open& next = open[random.Below(open.size())];
      const Chat& chat = chats_[next.chat];
      const uint32_t prompt = chat.prompts[next.turn];
      // Of what comes before the next prompt ends, the first two thirds are the answer.
      const bool last = next.turn + 1 == chat.prompts.size();
      const uint32_t total = last ? chat.blocks : prompt + (chat.prompts[next.turn + 1] - prompt) * 2 / 3;
      const bool at_home = Uniform(&places) < 0.9;
      const uint64_t worker = at_home ? Mix(next.chat * 7919ull + 13) % workers : places.Below(workers);
      requests_.push_back({chat.begin, prompt, total, static_cast<uint32_t>(worker)});
      if (++next.turn == chat.prompts.size()) next = {NewChat(&random), 0};
    }
    chained_.resize(local_.size());
    for (const Chat& chat : chats_)
      Chain({local_.data() + chat.begin, chat.blocks}, chained_.data() + chat.begin);
  }

  const std::vector<Request>& requests() const { return requests_; }
  const std::vector<uint64_t>& local() const { return local_; }
  const std::vector<uint64_t>& chained() const { return chained_; }

 private:
  struct Chat {
    size_t begin;
    uint32_t blocks;
    std::vector<uint32_t> prompts;  // length of the prompt at each turn
  };

  void MakeSystemPrompts(Random* random) {
    double sum = 0;
    for (int i = 0; i < 64; ++i) {
      std::vector<uint64_t> prompt(static_cast<size_t>(std::exp(std::log(16.0) * (1 + Uniform(random)))));
      for (uint64_t& block : prompt) block = random->Next();
      system_prompts_.push_back(std::move(prompt));
      popularity_.push_back(sum += 1.0 / (i + 1));
    }
    for (double& each : popularity_) each /= sum;
  }

  uint32_t NewChat(Random* random) {
    Chat chat{local_.size(), 0, {}};
    const auto own = [&](uint64_t blocks) {
      for (uint64_t i = 0; i < blocks; ++i) local_.push_back(random->Next());
    };
    if (Uniform(random) < 0.6) {
      const auto chosen = std::lower_bound(popularity_.begin(), popularity_.end(), Uniform(random));
      const std::vector<uint64_t>& prompt =
          system_prompts_[static_cast<size_t>(chosen - popularity_.begin())];
      local_.insert(local_.end(), prompt.begin(), prompt.end());
    } else {
      own(8 + random->Below(57));
    }
    int turns = 1;
    while (turns < 30 && Uniform(random) < 0.8) ++turns;
    for (int turn = 0; turn < turns; ++turn) {
      own(1 + random->Below(16));
      chat.prompts.push_back(static_cast<uint32_t>(local_.size() - chat.begin));
      own(2 + random->Below(31));
    }
    chat.blocks = static_cast<uint32_t>(local_.size() - chat.begin);
    chats_.push_back(std::move(chat));
    return static_cast<uint32_t>(chats_.size() - 1);
  }

  std::vector<std::vector<uint64_t>> system_prompts_;
  std::vector<double> popularity_;  // cumulated
  std::vector<Chat> chats_;
  std::vector<Request> requests_;
  std::vector<uint64_t> local_;
  std::vector<uint64_t> chained_;
};

// An engine's cache: least recently used block by block, the later block of a prompt first.
class EngineCache {
 public:
  explicit EngineCache(size_t capacity) : capacity_(capacity), nodes_(1) {}

  // Leading blocks that were there already; appends what had to go.
  uint32_t Use(std::span<const uint64_t> chain, std::vector<uint64_t>* removed) {
    uint32_t hit = 0;
    while (hit < chain.size() && place_.contains(chain[hit])) ++hit;
    for (size_t i = chain.size(); i-- > 0;) {
      const auto [at, is_new] = place_.try_emplace(chain[i], 0);
      if (is_new) {
        at->second = Make(chain[i]);
      } else {
        Unlink(at->second);
      }
      LinkNewest(at->second);
    }
    while (place_.size() > capacity_) {
      const uint32_t oldest = nodes_[0].newer;
      Unlink(oldest);
      removed->push_back(nodes_[oldest].block);
      place_.erase(nodes_[oldest].block);
      free_.push_back(oldest);
    }
    return hit;
  }

 private:
  struct Node {
    uint64_t block = 0;
    uint32_t newer = 0;
    uint32_t older = 0;
  };
  uint32_t Make(uint64_t block) {
    if (free_.empty()) {
      nodes_.push_back({block});
      return static_cast<uint32_t>(nodes_.size() - 1);
    }
    const uint32_t node = free_.back();
    free_.pop_back();
    nodes_[node].block = block;
    return node;
  }
  void Unlink(uint32_t node) {
    nodes_[nodes_[node].newer].older = nodes_[node].older;
    nodes_[nodes_[node].older].newer = nodes_[node].newer;
  }
  void LinkNewest(uint32_t node) {
    nodes_[node].newer = 0;
    nodes_[node].older = nodes_[0].older;
    nodes_[nodes_[0].older].newer = node;
    nodes_[0].older = node;
  }

  size_t capacity_;
  std::vector<Node> nodes_;  // a ring through nodes_[0]
  std::vector<uint32_t> free_;
  absl::flat_hash_map<uint64_t, uint32_t> place_;
};

// Chats as a router hears of them: it asks, and engines tell what they stored and removed.
struct Events {
  enum class Kind : uint8_t { kMatch, kStored, kRemoved };
  struct Event {
    Kind kind;
    uint32_t worker;
    uint32_t blocks;
    size_t begin;     // in the chats' blocks, or in `removed`
    uint64_t parent;  // of a stored one; 0: none
  };

  Events(const Chats& chats, uint32_t workers, size_t blocks_per_worker) {
    std::vector<EngineCache> engines(workers, EngineCache(blocks_per_worker));
    std::vector<uint64_t> gone;
    for (const Chats::Request& request : chats.requests()) {
      events.push_back({Kind::kMatch, request.worker, request.prompt, request.begin, 0});
      const uint64_t* const chain = chats.chained().data() + request.begin;
      gone.clear();
      const uint32_t hit = engines[request.worker].Use({chain, request.total}, &gone);
      if (hit < request.total) {
        events.push_back(
            {Kind::kStored, request.worker, request.total - hit, request.begin + hit,
             hit ? chain[hit - 1] : 0});
      }
      if (!gone.empty()) {
        events.push_back(
            {Kind::kRemoved, request.worker, static_cast<uint32_t>(gone.size()), removed.size(), 0});
        removed.insert(removed.end(), gone.begin(), gone.end());
      }
    }
  }

  std::vector<Event> events;
  std::vector<uint64_t> removed;
};

// Time in ticks of the processor's own counter where there is one, since steady_clock costs as much as a match.
inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

inline double NsPerTick() {
  static const double ns = [] {
    const auto begin = std::chrono::steady_clock::now();
    const uint64_t first = Ticks();
    while (std::chrono::steady_clock::now() - begin < std::chrono::milliseconds(20)) {
    }
    const uint64_t last = Ticks();
    const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
    return time.count() / static_cast<double>(last - first);
  }();
  return ns;
}

// Times of single operations. Those during which the thread was clearly not running are left out, and counted.
class Times {
 public:
  void Add(uint64_t ticks, uint32_t blocks) { all_.push_back({static_cast<float>(ticks), blocks}); }

  double NsPerBlock() const {
    if (all_.empty()) return 0;
    std::vector<float> rates;
    for (const One& one : all_) rates.push_back(one.ticks / static_cast<float>(one.blocks));
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    double ticks = 0;
    double blocks = 0;
    for (const One& one : all_) {
      if (one.ticks > 20 * *middle * static_cast<float>(one.blocks) + 100'000) continue;
      ticks += one.ticks;
      blocks += one.blocks;
    }
    return ticks * NsPerTick() / blocks;
  }

  double Quantile(double q) const {
    if (all_.empty()) return 0;
    std::vector<float> ticks;
    for (const One& one : all_) ticks.push_back(one.ticks);
    const auto at = ticks.begin() + static_cast<std::ptrdiff_t>(q * static_cast<double>(ticks.size() - 1));
    std::nth_element(ticks.begin(), at, ticks.end());
    return *at * NsPerTick();
  }

 private:
  struct One {
    float ticks;
    uint32_t blocks;
  };
  std::vector<One> all_;
};

}  // namespace vllm_router::bench
