// KvFabric: what GPUs and the network between them would keep of KV blocks that a prefill worker has computed and a
// decode worker pulls, after vLLM's NIXL connector. The simulated stage workers of one process share one; workers in
// two processes cannot transfer.
//
//   prefill engine e1   block   1   2   3   4   5   6          Hold("r7", {a, b}) -> blocks 3 and 4, under a lease
//                       content c   d   a   b   -   -          Pull(e1, "r7", {3, 4}) -> {a, b}, and the blocks are free
//                               free    r7      free
//
// Nothing protects a reader: a pull reads the blocks by their numbers, of whatever prompt they are by now. A block that was
// freed by a pull keeps its content until it is used again, so a second pull may still be right. When a lease ends the
// contents are wiped at once, as if all had been reused: the worst case, so that a test sees a late pull in the text.
//
// Blocks are numbered from 1 and reused in the order in which they were freed. The ids of past requests are kept as
// long as their engine. Cost: linear in the blocks named. Thread-safe; one mutex, a leaf. The clock is passed in, and
// each engine's can be moved ahead, so that no test waits for a lease.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"

namespace vllm_router {

class KvFabric {
 public:
  struct Engine {
    std::string host;
    uint16_t port = 0;  // of its side channel, unique with the host; 0: the fabric chooses one
    size_t blocks = 0;
    int64_t lease_nanos = int64_t{30} * 1'000'000'000;
  };

  // Of one engine; the first two are gauges.
  struct Counters {
    uint64_t held = 0;          // requests whose blocks wait for their pull
    uint64_t held_blocks = 0;   // blocks of those
    uint64_t pulled = 0;        // requests whose blocks were read and freed
    uint64_t released = 0;      // freed without a transfer, on a notice of the decode worker
    uint64_t stranded = 0;      // their lease ended before a pull
    uint64_t double_pull = 0;   // pulls of a request that was pulled or released before
    uint64_t late_pull = 0;     // pulls of a request whose lease had ended
    uint64_t unknown_pull = 0;  // pulls under an id that the engine never held

    bool operator==(const Counters&) const = default;
  };

  // The contents that were read, or why there are none. `kDead`: no engine has this id, or it has detached.
  struct Pulled {
    enum class Result : uint8_t { kDone, kDead, kBadBlocks } result = Result::kDead;
    std::vector<uint64_t> contents;
  };

  explicit KvFabric(const Clock& clock) : clock_(clock) {}

  // The one that the simulated workers of this process share.
  static KvFabric& OfProcess();

  // REQUIRES: the id is new. Returns the port; 0: an engine that is attached has this host and port.
  uint16_t Attach(const std::string& id, const Engine& engine);
  // The engine is dead: its memory is gone, its counts stay.
  void Detach(const std::string& id);
  void Forget(const std::string& id);

  // Which engine listens there; nullopt: none.
  std::optional<std::string> EngineAt(std::string_view host, uint16_t port);
  bool attached(const std::string& id);

  // Keeps the contents in blocks of their own until a pull, a release or the end of the lease. Nullopt: too few blocks
  // are free, and nothing has changed. REQUIRES of both: the engine is known; of Hold: the request's id is new.
  std::optional<std::vector<uint32_t>> Hold(
      const std::string& engine, const std::string& request, std::span<const uint64_t> contents);
  // A request whose blocks no decode worker pulls: its contents pass through blocks that are free, as many as there are.
  void Use(const std::string& engine, std::span<const uint64_t> contents);

  // Reads the blocks and frees those of the request, if it is held, whichever they are. A pull that fails frees nothing.
  Pulled Pull(const std::string& engine, const std::string& request, std::span<const uint32_t> blocks);
  // The decode worker's notice that it will not pull. Unknown engines and requests: no effect.
  void Release(const std::string& engine, const std::string& request);

  // Moves the engine's clock ahead.
  void Advance(const std::string& engine, int64_t nanos);
  // Zeros for an unknown engine.
  Counters CountersOf(const std::string& engine);

 private:
  enum class State : uint8_t { kHeld, kPulled, kReleased, kExpired };
  struct Request {
    State state;
    int64_t expiry;
    std::vector<uint32_t> blocks;
  };
  struct Memory {
    Engine options;
    bool attached = true;
    int64_t ahead = 0;               // of the clock, in nanoseconds
    std::vector<uint64_t> contents;  // by block number - 1; 0: none
    std::deque<uint32_t> free;
    std::map<std::string, Request> requests;
    std::deque<std::string> leases;  // ids in the order of their expiry; some have ended otherwise
    Counters counters;
  };

  Memory* Find(const std::string& id) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);  // its leases are up to date
  void EndLeases(Memory& memory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  static void Free(Memory& memory, Request& request, State state);

  const Clock& clock_;
  Mutex mutex_;
  std::map<std::string, Memory> engines_ ABSL_GUARDED_BY(mutex_);
  uint16_t next_port_ ABSL_GUARDED_BY(mutex_) = 5600;  // vLLM's VLLM_NIXL_SIDE_CHANNEL_PORT
};

}  // namespace vllm_router
