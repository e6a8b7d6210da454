// What the block index is measured against: three designs that others use, written for this purpose with one interface
// and the care one would take. Each answers with the depths of all workers that hold the first block.
//
//   MapOfMaps    block -> worker's name -> time of last use, in sharded locked maps; a binary search per worker
//   Positional   (position, block's own hash) -> workers; looks at every 32nd position and compares the counts
//   BlockTree    one node per block, with a lock, its children by hash, and its workers
//
// The first two are exact only while no prefix has holes, which holds for the events that they are given here.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "base/text.h"
#include "block_workload.h"

namespace vllm_router::bench {

// A reader-writer lock that spins: what is locked here is locked for nanoseconds, and nobody contends.
class SpinLock {
 public:
  void lock_shared() {
    while (state_.fetch_add(1, std::memory_order_acquire) >= kWriter) {
      state_.fetch_sub(1, std::memory_order_relaxed);
      while (state_.load(std::memory_order_relaxed) >= kWriter) {
      }
    }
  }
  void unlock_shared() { state_.fetch_sub(1, std::memory_order_release); }
  void lock() {
    uint32_t none = 0;
    while (!state_.compare_exchange_weak(none, kWriter, std::memory_order_acquire)) none = 0;
  }
  void unlock() { state_.fetch_sub(kWriter, std::memory_order_release); }

 private:
  static constexpr uint32_t kWriter = 1u << 31;
  std::atomic<uint32_t> state_{0};
};

// Workers and depths, as a policy would want them.
class Answer {
 public:
  void Clear() { all_.clear(); }
  void Add(uint32_t worker, uint32_t depth) { all_.push_back({worker, depth}); }
  uint64_t signature() const {
    uint64_t sum = 0;
    for (const auto& [worker, depth] : all_) sum += Signature(worker, depth);
    return sum;
  }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> all_;
};

class MapOfMaps {
 public:
  explicit MapOfMaps(uint32_t workers) {
    for (uint32_t i = 0; i < workers; ++i) {
      names_.push_back(Concat("http://10.0.", i / 256, ".", i % 256, ":8000"));
      numbers_[names_.back()] = i;
    }
  }

  void Store(
      uint32_t worker, uint64_t /*parent*/, const uint64_t* /*local*/, const uint64_t* chain,
      uint32_t blocks) {
    const uint64_t now = ++epoch_;
    for (uint32_t i = 0; i < blocks; ++i) {
      Shard& shard = ShardOf(chain[i]);
      const std::lock_guard outer(shard.lock);
      std::unique_ptr<Block>& block = shard.blocks[chain[i]];
      if (block == nullptr) block = std::make_unique<Block>();
      const std::lock_guard inner(block->lock);
      block->used[names_[worker]] = now;
    }
  }

  void Remove(uint32_t worker, const uint64_t* chain, uint32_t blocks) {
    for (uint32_t i = 0; i < blocks; ++i) {
      Shard& shard = ShardOf(chain[i]);
      const std::lock_guard outer(shard.lock);
      const auto found = shard.blocks.find(chain[i]);
      if (found == shard.blocks.end()) continue;
      found->second->used.erase(names_[worker]);
      if (found->second->used.empty()) shard.blocks.erase(found);
    }
  }

  void RemoveWorker(uint32_t worker) {
    for (Shard& shard : shards_) {
      const std::lock_guard outer(shard.lock);
      for (auto each = shard.blocks.begin(); each != shard.blocks.end();) {
        each->second->used.erase(names_[worker]);
        each = each->second->used.empty() ? shard.blocks.erase(each) : std::next(each);
      }
    }
  }

  void Match(const uint64_t* /*local*/, const uint64_t* chain, uint32_t blocks) {
    answer_.Clear();
    candidates_.clear();
    {
      Shard& shard = ShardOf(chain[0]);
      const std::shared_lock outer(shard.lock);
      const auto found = shard.blocks.find(chain[0]);
      if (found == shard.blocks.end()) return;
      const std::shared_lock inner(found->second->lock);
      for (const auto& [name, time] : found->second->used) candidates_.push_back(name);
    }
    for (const std::string& name : candidates_) {
      uint32_t low = 1;
      uint32_t high = blocks;
      while (low < high) {
        const uint32_t middle = (low + high + 1) / 2;
        if (Has(chain[middle - 1], name)) {
          low = middle;
        } else {
          high = middle - 1;
        }
      }
      answer_.Add(numbers_.find(name)->second, low);
    }
  }

  uint64_t signature() const { return answer_.signature(); }

 private:
  struct Block {
    SpinLock lock;
    std::unordered_map<std::string, uint64_t> used;
  };
  struct alignas(64) Shard {
    SpinLock lock;
    std::unordered_map<uint64_t, std::unique_ptr<Block>> blocks;
  };

  Shard& ShardOf(uint64_t block) { return shards_[block >> 60]; }
  bool Has(uint64_t block, const std::string& name) {
    Shard& shard = ShardOf(block);
    const std::shared_lock outer(shard.lock);
    const auto found = shard.blocks.find(block);
    if (found == shard.blocks.end()) return false;
    const std::shared_lock inner(found->second->lock);
    return found->second->used.contains(name);
  }

  std::array<Shard, 16> shards_;
  std::atomic<uint64_t> epoch_{0};
  std::vector<std::string> names_;
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> candidates_;
  Answer answer_;
};

class Positional {
 public:
  explicit Positional(uint32_t workers) : held_(workers) {}

  void Store(
      uint32_t worker, uint64_t parent, const uint64_t* local, const uint64_t* chain, uint32_t blocks) {
    uint32_t position = 0;
    if (parent != 0) {
      const auto found = held_[worker].find(parent);
      if (found == held_[worker].end()) return;
      position = found->second.position + 1;
    }
    for (uint32_t i = 0; i < blocks; ++i) {
      const Key key{position + i, local[i]};
      Shard& shard = ShardOf(key);
      {
        const std::lock_guard lock(shard.lock);
        shard.entries[key][chain[i]].insert(worker);
      }
      held_[worker][chain[i]] = key;
    }
  }

  void Remove(uint32_t worker, const uint64_t* chain, uint32_t blocks) {
    for (uint32_t i = 0; i < blocks; ++i) {
      const auto found = held_[worker].find(chain[i]);
      if (found == held_[worker].end()) continue;
      const Key key = found->second;
      held_[worker].erase(found);
      Shard& shard = ShardOf(key);
      const std::lock_guard lock(shard.lock);
      const auto entry = shard.entries.find(key);
      Workers& workers = entry->second[chain[i]];
      workers.erase(worker);
      if (workers.empty()) entry->second.Erase(chain[i]);
      if (entry->second.empty()) shard.entries.erase(entry);
    }
  }

  void RemoveWorker(uint32_t worker) {
    std::vector<uint64_t> all;
    for (const auto& [block, key] : held_[worker]) all.push_back(block);
    Remove(worker, all.data(), static_cast<uint32_t>(all.size()));
  }

  void Match(const uint64_t* local, const uint64_t* chain, uint32_t blocks) {
    constexpr uint32_t kJump = 32;
    answer_.Clear();
    active_.clear();
    Look({0, local[0]}, chain[0], [this](const Workers& w) { active_.assign(w.begin(), w.end()); });
    uint32_t position = 0;
    while (position + 1 < blocks && !active_.empty()) {
      const uint32_t next = std::min(position + kJump, blocks - 1);
      size_t count = 0;
      Look({next, local[next]}, chain[next], [&](const Workers& w) { count = w.size(); });
      if (count == active_.size()) {
        position = next;
        continue;
      }
      for (uint32_t i = position + 1; i <= next && !active_.empty(); ++i) {
        const bool known = Look({i, local[i]}, chain[i], [&](const Workers& w) {
          if (w.size() == active_.size()) return;
          std::erase_if(active_, [&](uint32_t worker) {
            if (w.contains(worker)) return false;
            answer_.Add(worker, i);
            return true;
          });
        });
        if (known) continue;
        for (const uint32_t worker : active_) answer_.Add(worker, i);
        active_.clear();
      }
      position = next;
    }
    for (const uint32_t worker : active_) answer_.Add(worker, blocks);
  }

  uint64_t signature() const { return answer_.signature(); }

 private:
  using Workers = absl::flat_hash_set<uint32_t>;
  struct Key {
    uint32_t position = 0;
    uint64_t local = 0;
    bool operator==(const Key&) const = default;
    template <typename H>
    friend H AbslHashValue(H state, const Key& key) {
      return H::combine(std::move(state), key.position, key.local);
    }
  };
  // Workers by chained hash: nearly always one, so it lies here.
  class Entry {
   public:
    Workers& operator[](uint64_t chained) {
      if (first_.empty() && others_ == nullptr) chained_ = chained;
      if (chained == chained_) return first_;
      if (others_ == nullptr) others_ = std::make_unique<absl::flat_hash_map<uint64_t, Workers>>();
      return (*others_)[chained];
    }
    const Workers* Find(uint64_t chained) const {
      if (chained == chained_) return first_.empty() ? nullptr : &first_;
      if (others_ == nullptr) return nullptr;
      const auto found = others_->find(chained);
      return found == others_->end() ? nullptr : &found->second;
    }
    void Erase(uint64_t chained) {
      if (chained != chained_) others_->erase(chained);
    }
    bool empty() const { return first_.empty() && (others_ == nullptr || others_->empty()); }

   private:
    uint64_t chained_ = 0;
    Workers first_;
    std::unique_ptr<absl::flat_hash_map<uint64_t, Workers>> others_;
  };
  struct alignas(64) Shard {
    SpinLock lock;
    absl::flat_hash_map<Key, Entry> entries;
  };

  Shard& ShardOf(const Key& key) { return shards_[(key.local ^ key.position * kGolden) >> 54]; }
  template <typename See>
  bool Look(const Key& key, uint64_t chained, See see) {
    Shard& shard = ShardOf(key);
    const std::shared_lock lock(shard.lock);
    const auto found = shard.entries.find(key);
    if (found == shard.entries.end()) return false;
    const Workers* const workers = found->second.Find(chained);
    if (workers == nullptr) return false;
    see(*workers);
    return true;
  }

  std::vector<Shard> shards_{1024};
  std::vector<absl::flat_hash_map<uint64_t, Key>> held_;  // by worker
  std::vector<uint32_t> active_;
  Answer answer_;
};

class BlockTree {
 public:
  explicit BlockTree(uint32_t workers) : held_(workers) {}
  ~BlockTree() { Destroy(&root_); }

  void Store(
      uint32_t worker, uint64_t parent, const uint64_t* local, const uint64_t* chain, uint32_t blocks) {
    Node* node = &root_;
    if (parent != 0) {
      const auto found = held_[worker].find(parent);
      if (found == held_[worker].end()) return;
      node = found->second;
    }
    for (uint32_t i = 0; i < blocks; ++i) {
      Node* child = nullptr;
      {
        const std::lock_guard lock(node->lock);
        Node*& place = node->children[local[i]];
        if (place == nullptr) place = new Node{.parent = node, .local = local[i]};
        child = place;
      }
      {
        const std::lock_guard lock(child->lock);
        child->workers.insert(worker);
      }
      held_[worker][chain[i]] = child;
      node = child;
    }
  }

  void Remove(uint32_t worker, const uint64_t* chain, uint32_t blocks) {
    for (uint32_t i = 0; i < blocks; ++i) {
      const auto found = held_[worker].find(chain[i]);
      if (found == held_[worker].end()) continue;
      Node* node = found->second;
      held_[worker].erase(found);
      {
        const std::lock_guard lock(node->lock);
        node->workers.erase(worker);
      }
      while (node != &root_ && node->workers.empty() && node->children.empty()) {
        Node* const parent = node->parent;
        {
          const std::lock_guard lock(parent->lock);
          parent->children.erase(node->local);
        }
        delete node;
        node = parent;
      }
    }
  }

  void RemoveWorker(uint32_t worker) {
    std::vector<uint64_t> all;
    for (const auto& [block, node] : held_[worker]) all.push_back(block);
    Remove(worker, all.data(), static_cast<uint32_t>(all.size()));
  }

  void Match(const uint64_t* local, const uint64_t* /*chain*/, uint32_t blocks) {
    answer_.Clear();
    active_.clear();
    Node* node = &root_;
    uint32_t depth = 0;
    for (; depth < blocks; ++depth) {
      Node* child = nullptr;
      {
        const std::shared_lock lock(node->lock);
        const auto found = node->children.find(local[depth]);
        if (found == node->children.end()) break;
        child = found->second;
      }
      const std::shared_lock lock(child->lock);
      if (depth == 0) {
        active_.assign(child->workers.begin(), child->workers.end());
      } else if (child->workers.size() != active_.size()) {
        std::erase_if(active_, [&](uint32_t worker) {
          if (child->workers.contains(worker)) return false;
          answer_.Add(worker, depth);
          return true;
        });
      }
      if (active_.empty()) return;
      node = child;
    }
    for (const uint32_t worker : active_) answer_.Add(worker, depth);
  }

  uint64_t signature() const { return answer_.signature(); }

 private:
  struct Node {
    Node* parent = nullptr;
    uint64_t local = 0;
    SpinLock lock{};
    absl::flat_hash_map<uint64_t, Node*> children{};
    absl::flat_hash_set<uint32_t> workers{};
  };

  static void Destroy(Node* root) {
    std::vector<Node*> stack;
    const auto push = [&stack](Node* node) {
      for (const auto& [local, child] : node->children) stack.push_back(child);
    };
    push(root);
    while (!stack.empty()) {
      Node* const node = stack.back();
      stack.pop_back();
      push(node);
      delete node;
    }
  }

  Node root_;
  std::vector<absl::flat_hash_map<uint64_t, Node*>> held_;  // by worker
  std::vector<uint32_t> active_;
  Answer answer_;
};

}  // namespace vllm_router::bench
