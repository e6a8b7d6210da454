#include "simulation/kv_fabric.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace vllm_router {

KvFabric& KvFabric::OfProcess() {
  static const SteadyClock clock;
  static KvFabric fabric(clock);
  return fabric;
}

uint16_t KvFabric::Attach(const std::string& id, const Engine& engine) {
  MutexLock lock(mutex_);
  const auto taken = [&](uint16_t port) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return std::any_of(engines_.begin(), engines_.end(), [&](const auto& entry) {
      const Memory& other = entry.second;
      return other.attached && other.options.host == engine.host && other.options.port == port;
    });
  };
  uint16_t port = engine.port;
  if (port == 0) {
    while (next_port_ == 0 || taken(next_port_)) ++next_port_;
    port = next_port_++;
  } else if (taken(port)) {
    return 0;
  }
  const auto [entry, is_new] = engines_.try_emplace(id);
  ROUTER_CHECK(is_new, "an engine attaches once");
  Memory& memory = entry->second;
  memory.options = engine;
  memory.options.port = port;
  memory.contents.resize(engine.blocks);
  for (size_t block = 1; block <= engine.blocks; ++block) memory.free.push_back(static_cast<uint32_t>(block));
  return port;
}

void KvFabric::Detach(const std::string& id) {
  MutexLock lock(mutex_);
  Memory* const memory = Find(id);
  if (memory == nullptr) return;
  memory->attached = false;
  memory->contents.clear();
  memory->free.clear();
  memory->requests.clear();
  memory->leases.clear();
  memory->counters.held = memory->counters.held_blocks = 0;
}

void KvFabric::Forget(const std::string& id) {
  MutexLock lock(mutex_);
  engines_.erase(id);
}

std::optional<std::string> KvFabric::EngineAt(std::string_view host, uint16_t port) {
  MutexLock lock(mutex_);
  for (const auto& [id, memory] : engines_) {
    if (memory.attached && memory.options.host == host && memory.options.port == port) return id;
  }
  return std::nullopt;
}

bool KvFabric::attached(const std::string& id) {
  MutexLock lock(mutex_);
  const auto found = engines_.find(id);
  return found != engines_.end() && found->second.attached;
}

std::optional<std::vector<uint32_t>> KvFabric::Hold(
    const std::string& engine, const std::string& request, std::span<const uint64_t> contents) {
  MutexLock lock(mutex_);
  Memory* const memory = Find(engine);
  ROUTER_CHECK(memory != nullptr, "the engine is known");
  if (memory->free.size() < contents.size()) return std::nullopt;
  Request held{State::kHeld, clock_.NowNanos() + memory->ahead + memory->options.lease_nanos, {}};
  for (const uint64_t content : contents) {
    const uint32_t block = memory->free.front();
    memory->free.pop_front();
    memory->contents[block - 1] = content;
    held.blocks.push_back(block);
  }
  memory->counters.held += 1;
  memory->counters.held_blocks += held.blocks.size();
  memory->leases.push_back(request);
  const auto [entry, is_new] = memory->requests.emplace(request, std::move(held));
  ROUTER_CHECK(is_new, "a request's blocks are held once");
  return entry->second.blocks;
}

void KvFabric::Use(const std::string& engine, std::span<const uint64_t> contents) {
  MutexLock lock(mutex_);
  Memory* const memory = Find(engine);
  ROUTER_CHECK(memory != nullptr, "the engine is known");
  const size_t count = std::min(contents.size(), memory->free.size());
  for (size_t i = 0; i < count; ++i) {
    const uint32_t block = memory->free.front();
    memory->free.pop_front();
    memory->contents[block - 1] = contents[i];
    memory->free.push_back(block);
  }
}

KvFabric::Pulled KvFabric::Pull(
    const std::string& engine, const std::string& request, std::span<const uint32_t> blocks) {
  using Result = Pulled::Result;
  MutexLock lock(mutex_);
  Memory* const memory = Find(engine);
  if (memory == nullptr || !memory->attached) return {Result::kDead, {}};
  Pulled pulled{Result::kDone, {}};
  for (const uint32_t block : blocks) {
    if (block == 0 || block > memory->contents.size()) return {Result::kBadBlocks, {}};
    pulled.contents.push_back(memory->contents[block - 1]);
  }
  const auto found = memory->requests.find(request);
  if (found == memory->requests.end()) {
    ++memory->counters.unknown_pull;
  } else if (found->second.state == State::kHeld) {
    ++memory->counters.pulled;
    Free(*memory, found->second, State::kPulled);
  } else if (found->second.state == State::kExpired) {
    ++memory->counters.late_pull;
  } else {
    ++memory->counters.double_pull;
  }
  return pulled;
}

void KvFabric::Release(const std::string& engine, const std::string& request) {
  MutexLock lock(mutex_);
  Memory* const memory = Find(engine);
  if (memory == nullptr) return;
  const auto found = memory->requests.find(request);
  if (found == memory->requests.end() || found->second.state != State::kHeld) return;
  ++memory->counters.released;
  Free(*memory, found->second, State::kReleased);
}

void KvFabric::Advance(const std::string& engine, int64_t nanos) {
  MutexLock lock(mutex_);
  if (Memory* const memory = Find(engine); memory != nullptr) memory->ahead += nanos;
}

KvFabric::Counters KvFabric::CountersOf(const std::string& engine) {
  MutexLock lock(mutex_);
  const Memory* const memory = Find(engine);
  return memory == nullptr ? Counters{} : memory->counters;
}

KvFabric::Memory* KvFabric::Find(const std::string& id) {
  const auto found = engines_.find(id);
  if (found == engines_.end()) return nullptr;
  EndLeases(found->second);
  return &found->second;
}

// All leases of an engine are equally long, so the oldest ends first.
void KvFabric::EndLeases(Memory& memory) {
  const int64_t now = clock_.NowNanos() + memory.ahead;
  while (!memory.leases.empty()) {
    Request& oldest = memory.requests.at(memory.leases.front());
    if (oldest.state == State::kHeld) {
      if (oldest.expiry > now) return;
      for (const uint32_t block : oldest.blocks) memory.contents[block - 1] = 0;
      ++memory.counters.stranded;
      Free(memory, oldest, State::kExpired);
    }
    memory.leases.pop_front();
  }
}

void KvFabric::Free(Memory& memory, Request& request, State state) {
  memory.counters.held -= 1;
  memory.counters.held_blocks -= request.blocks.size();
  memory.free.insert(memory.free.end(), request.blocks.begin(), request.blocks.end());
  request.blocks.clear();
  request.state = state;
}

}  // namespace vllm_router
