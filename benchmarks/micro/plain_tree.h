// PlainTree: a radix tree as one draws it first, to measure ours against. Every node has its label, a map of children,
// a map from worker to time of last use, and a lock for each; names are strings. Grows, matches and evicts by one walk
// over everything. Any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <queue>
#include <shared_mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace vllm_router::bench {

template <typename Unit>
class PlainTree {
 public:
  using Text = std::span<const Unit>;

  explicit PlainTree(size_t page) : page_(page), root_(std::make_shared<Node>()) {}

  // Length, and somebody who has it.
  size_t Match(Text text, std::string* worker) {
    std::shared_ptr<Node> node = root_;
    size_t depth = 0;
    while (text.size() - depth >= page_) {
      std::shared_ptr<Node> child;
      {
        const std::shared_lock lock(node->children_lock);
        const auto found = node->children.find(Key(text.subspan(depth)));
        if (found == node->children.end()) break;
        child = found->second;
      }
      const std::shared_lock lock(child->label_lock);
      const size_t common = Common(child->label, text.subspan(depth));
      depth += common;
      node = child;
      if (common < child->label.size()) break;
    }
    const std::shared_lock lock(node->workers_lock);
    worker->assign(node->workers.empty() ? std::string() : node->workers.begin()->first);
    return depth;
  }

  void Insert(Text text, const std::string& worker) {
    text = text.first(text.size() / page_ * page_);
    std::shared_ptr<Node> node = root_;
    const uint64_t now = ++time_;
    while (!text.empty()) {
      std::unique_lock lock(node->children_lock);
      std::shared_ptr<Node>& place = node->children[Key(text)];
      if (place == nullptr) {
        place = std::make_shared<Node>();
        place->label.assign(text.begin(), text.end());
        place->parent = node;
        place->workers[worker] = now;
        size_ += text.size() * sizeof(Unit);
        ++nodes_;
        return;
      }
      std::shared_ptr<Node> child = place;
      {
        const std::unique_lock label_lock(child->label_lock);
        const size_t common = Common(child->label, text);
        if (common < child->label.size()) {
          auto upper = std::make_shared<Node>();
          const auto cut = child->label.begin() + static_cast<std::ptrdiff_t>(common);
          upper->label.assign(child->label.begin(), cut);
          upper->parent = node;
          {
            const std::shared_lock workers_lock(child->workers_lock);
            upper->workers = child->workers;
          }
          child->label = Label(cut, child->label.end());
          child->parent = upper;
          upper->children[Key(child->label)] = child;
          place = upper;
          ++nodes_;
        }
        child = place;
      }
      text = text.subspan(child->label.size());
      const std::unique_lock workers_lock(child->workers_lock);
      child->workers[worker] = now;
      node = child;
    }
  }

  // Leaves of least recent use until `size` bytes are left: a walk over everything, then a heap.
  void Evict(uint64_t size) {
    struct Leaf {
      uint64_t used;
      std::shared_ptr<Node> node;
      bool operator<(const Leaf& other) const { return used > other.used; }
    };
    const auto used = [](const Node& node) {
      uint64_t last = 0;
      for (const auto& [worker, time] : node.workers) last = std::max(last, time);
      return last;
    };
    std::priority_queue<Leaf> leaves;
    std::vector<std::shared_ptr<Node>> open{root_};
    while (!open.empty()) {
      const std::shared_ptr<Node> node = open.back();
      open.pop_back();
      for (const auto& [key, child] : node->children) open.push_back(child);
      if (node->children.empty()) leaves.push({used(*node), node});
    }
    while (size_ > size && !leaves.empty()) {
      const std::shared_ptr<Node> node = leaves.top().node;
      leaves.pop();
      const std::shared_ptr<Node> parent = node->parent.lock();
      if (parent == nullptr) return;
      size_ -= node->label.size() * sizeof(Unit);
      --nodes_;
      parent->children.erase(Key(node->label));
      if (parent->children.empty()) leaves.push({used(*parent), parent});
    }
  }

  uint64_t size() const { return size_; }
  uint64_t nodes() const { return nodes_; }

 private:
  using Label = std::basic_string<Unit>;

  struct Node {
    std::shared_mutex label_lock;
    Label label;
    std::shared_mutex children_lock;
    std::unordered_map<std::string, std::shared_ptr<Node>> children;
    std::shared_mutex workers_lock;
    std::unordered_map<std::string, uint64_t> workers;
    std::weak_ptr<Node> parent;
  };

  // The first character or page; short ones need no memory of their own.
  std::string Key(Text text) const {
    return {reinterpret_cast<const char*>(text.data()), page_ * sizeof(Unit)};
  }
  size_t Common(Text a, Text b) const {
    const size_t count = std::min(a.size(), b.size());
    const auto [end, other] =
        std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(count), b.begin());
    return static_cast<size_t>(end - a.begin()) / page_ * page_;
  }

  const size_t page_;
  const std::shared_ptr<Node> root_;
  std::atomic<uint64_t> time_{0};
  std::atomic<uint64_t> size_{0};
  std::atomic<uint64_t> nodes_{0};
};

}  // namespace vllm_router::bench
