#include "policy/prompt_memory.h"

#include <algorithm>
#include <condition_variable>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/mutex.h"

namespace vllm_router {
namespace {

constexpr size_t kSlice = 256;  // pairs of worker and node; others wait for some 100 us

// The memory limit per byte of size: texts that share much and differ in short ends need more memory
// than their size.
constexpr uint64_t kMemoryPerSize = 4;
constexpr uint64_t kLeastMemory = 4 * 1024 * 1024;

template <typename Tree>
WorkerSlot Enter(Tree* tree) {
  for (;;) {
    const StatusOr<WorkerSlot> owner = tree->AddWorker();
    if (owner.ok()) return *owner;
    // A fleet has at most kMaxWorkers, so only workers that left are in the way.
    while (tree->Trim(kSlice, tree->options().max_size)) {
    }
    std::this_thread::yield();
  }
}

}  // namespace

// How the destructor tells the thread to end. The thread is not joined: it shares the bell, and holds
// the memory only while it trims it.
struct PromptMemory::Bell {
  Mutex mutex;
  std::condition_variable rung;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

std::shared_ptr<PromptMemory> PromptMemory::Create(const PromptMemoryOptions& options) {
  return std::shared_ptr<PromptMemory>(new PromptMemory(options));
}

PromptMemory::PromptMemory(const PromptMemoryOptions& options)
    : options_(options),
      texts_(
          {.max_size = options.max_size,
           .max_memory = std::max(options.max_size * kMemoryPerSize, kLeastMemory),
           .eviction = options.eviction}),
      tokens_(
          {.max_size = options.max_size,
           .max_memory = std::max(options.max_size * kMemoryPerSize, kLeastMemory),
           .eviction = options.eviction,
           .page_size = kPageTokens}),
      bell_(std::make_shared<Bell>()) {}

PromptMemory::~PromptMemory() {
  const MutexLock lock(bell_->mutex);
  bell_->ended = true;
  bell_->rung.notify_all();
}

PromptMemory::Owner PromptMemory::AddWorker() {
  if (!std::exchange(tidying_, true)) StartTidying();
  const Owner worker{.of_text = Enter(&texts_), .of_tokens = Enter(&tokens_)};
  capacity_[static_cast<size_t>(worker.of_text)].store(0, std::memory_order_relaxed);
  return worker;
}

void PromptMemory::RemoveWorker(Owner worker) {
  texts_.RemoveWorker(worker.of_text);
  tokens_.RemoveWorker(worker.of_tokens);
}

void PromptMemory::Match(const Prompt& prompt, PrefixMatches* matches) const {
  if (prompt.kind == Prompt::Kind::kTokens) {
    tokens_.Match(prompt.tokens(), matches);
  } else {
    texts_.Match(prompt.text(), matches);
  }
}

uint64_t PromptMemory::Insert(
    const Prompt& prompt, Owner worker, const PrefixInsert& insert, const PrefixMatches& walked) {
  uint64_t claim;
  if (prompt.kind == Prompt::Kind::kTokens) {
    claim = tokens_.Insert(prompt.tokens(), worker.of_tokens, insert, &walked);
    has_tokens_.store(true, std::memory_order_relaxed);
    if (has_texts_.load(std::memory_order_relaxed)) MakeRoom(tokens_.size(), &texts_);
  } else {
    claim = texts_.Insert(prompt.text(), worker.of_text, insert, &walked);
    has_texts_.store(true, std::memory_order_relaxed);
    if (has_tokens_.load(std::memory_order_relaxed)) MakeRoom(texts_.size(), &tokens_);
  }
  KeepCapacity(worker);
  return claim;
}

void PromptMemory::Settle(Prompt::Kind kind, uint64_t claim, bool reached_worker) {
  const auto settle = [&](auto& tree) {
    if (reached_worker) {
      tree.Confirm(claim);
    } else {
      tree.Withdraw(claim);
    }
  };
  if (kind == Prompt::Kind::kTokens) {
    settle(tokens_);
  } else {
    settle(texts_);
  }
}

template <typename Other>
void PromptMemory::MakeRoom(uint64_t grown, Other* other) {
  const uint64_t left = options_.max_size - std::min(grown, options_.max_size);
  while (other->Trim(kSlice, left)) {
  }
}

void PromptMemory::SetCapacity(Owner worker, uint64_t bytes) {
  capacity_[static_cast<size_t>(worker.of_text)].store(bytes, std::memory_order_relaxed);
  KeepCapacity(worker);
}

// The larger tree evicts, so that a worker that gets texts and ids keeps some of both.
void PromptMemory::KeepCapacity(Owner worker) {
  const uint64_t most = capacity_[static_cast<size_t>(worker.of_text)].load(std::memory_order_relaxed);
  if (most == 0) return;
  const auto size_in = [](const auto& tree, const std::atomic<bool>& used, WorkerSlot owner) {
    return used.load(std::memory_order_relaxed) ? tree.size(owner) : 0;
  };
  const uint64_t text = size_in(texts_, has_texts_, worker.of_text);
  const uint64_t tokens = size_in(tokens_, has_tokens_, worker.of_tokens);
  if (text + tokens <= most) return;
  if (text >= tokens) {
    texts_.EvictWorker(worker.of_text, most - std::min(most, tokens));
  } else {
    tokens_.EvictWorker(worker.of_tokens, most - std::min(most, text));
  }
}

void PromptMemory::Forget(Owner worker) {
  texts_.EvictWorker(worker.of_text, 0);
  tokens_.EvictWorker(worker.of_tokens, 0);
}

void PromptMemory::Sizes(std::span<const Owner> workers, std::span<uint64_t> sizes) const {
  thread_local std::vector<WorkerSlot> own_owners;
  std::vector<WorkerSlot>& owners = own_owners;  // each access to a thread-local variable is a call
  const auto find = [&](const auto& tree, WorkerSlot Owner::*member, std::span<uint64_t> found) {
    owners.resize(workers.size());
    for (size_t i = 0; i < workers.size(); ++i) owners[i] = workers[i].*member;
    tree.Sizes(owners, found);
  };
  const bool has_tokens = has_tokens_.load(std::memory_order_relaxed);
  if (!has_texts_.load(std::memory_order_relaxed)) {
    std::fill(sizes.begin(), sizes.end(), 0);
    if (has_tokens) find(tokens_, &Owner::of_tokens, sizes);
    return;
  }
  find(texts_, &Owner::of_text, sizes);
  if (!has_tokens) return;
  thread_local std::vector<uint64_t> own_added;
  std::vector<uint64_t>& added = own_added;
  added.resize(workers.size());
  find(tokens_, &Owner::of_tokens, added);
  for (size_t i = 0; i < sizes.size(); ++i) sizes[i] += added[i];
}

uint64_t PromptMemory::size() const { return texts_.size() + tokens_.size(); }

PrefixTreeStats PromptMemory::stats() const {
  PrefixTreeStats sum = texts_.stats();
  const PrefixTreeStats tokens = tokens_.stats();
  sum.nodes += tokens.nodes;
  sum.owners += tokens.owners;
  sum.size += tokens.size;
  sum.memory += tokens.memory;
  sum.starts += tokens.starts;
  sum.inserts += tokens.inserts;
  sum.evicted += tokens.evicted;
  sum.evicted_size += tokens.evicted_size;
  sum.removing += tokens.removing;
  return sum;
}

void PromptMemory::Tidy() {
  while (texts_.Trim(kSlice, options_.max_size)) {
  }
  while (tokens_.Trim(kSlice, options_.max_size)) {
  }
}

void PromptMemory::StartTidying() {
  const auto tidy = [bell = bell_, weak = weak_from_this(), interval = options_.interval] {
    MutexLock lock(bell->mutex);
    while (!bell->rung.wait_for(
        lock.native(), interval, [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(bell->mutex) { return bell->ended; })) {
      lock.Unlock();
      if (const std::shared_ptr<PromptMemory> memory = weak.lock()) memory->Tidy();
      lock.Lock();
    }
  };
  try {
    std::thread(tidy).detach();
  } catch (const std::system_error&) {
    // No thread could be started: inserts evict in small steps instead.
  }
}

}  // namespace vllm_router
