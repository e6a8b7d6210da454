// EventSubscriber: the events thread. It hears the KV events of every source over ZeroMQ and is the only
// writer of what workers report (ReportedBlocks).
//
//   PUB  of an engine ----> SUB ----.
//   ROUTER of an engine <-> DEALER --+-> SourceState: what to apply, replay, forget -> EventApplier -> ReportedBlocks
//
// A source that floods, stalls or lies affects its own worker only: per turn each source gets
// SourceSession::kTurnMessages, a batch that cannot be decoded counts as lost, and the trust of a worker falls to what its
// worst source deserves. A worker that owes blocks, because it computed prompts, and publishes nothing
// for kSilentNanos is silent.
//
// All methods from any thread, and none waits for a turn: a change of the sources takes effect in the next
// one, and Report() is a turn or 50 ms old.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "events/kv_source.h"
#include "index/kv_trust.h"
#include "index/reported_blocks.h"

namespace vllm_router {

// One source, as of now.
struct KvSourceStatus {
  using Counts = std::vector<std::pair<std::string_view, uint64_t>>;  // by label; without zeros

  KvSource source;
  KvTrust trust = KvTrust::kWaiting;  // of the source; its worker's is the worst of its sources'
  double trust_seconds = 0;           // since it changed last
  bool connected = false;
  uint64_t reconnects = 0;
  uint64_t received_batches = 0;  // live and replayed
  uint64_t applied_batches = 0;
  uint64_t lost_batches = 0;
  double lag_seconds = 0;  // of the last batch: from the engine's clock to ours; 0: it has no time
  uint64_t next_number = 0;
  uint32_t incarnation = 0;
  uint64_t held_bytes = 0;
  uint32_t block_size = 0;  // tokens, of the engine; 0: not known yet
  double coverage = 0;      // of the engine's GPU blocks those that are known; 0: it does not tell how many
  uint64_t stored_blocks = 0;   // of the engine, ever
  uint64_t removed_blocks = 0;  // likewise
  uint64_t unknown_removed_blocks = 0;
  std::array<uint64_t, kTierCount> blocks{};  // of the router's size that the cache holds now
  uint64_t orphan_blocks = 0;
  uint64_t bytes = 0;   // of the map from the engine's names to places
  Counts dropped;       // events and batches, by reason
  Counts replays;       // by result
  Counts incarnations;  // by cause
};

struct EventSubscriberOptions {
  size_t parallel_replays = 8;
};

class EventSubscriber {
 public:
  static constexpr int64_t kSilentNanos = 10'000'000'000;

  // `blocks` outlives it. kResourceExhausted if the thread or its sockets cannot be made.
  static StatusOr<std::unique_ptr<EventSubscriber>> Start(
      ReportedBlocks* blocks, const EventSubscriberOptions& options = {});
  ~EventSubscriber();

  // The sources from now on; those that are the same go on.
  void SetSources(std::vector<KvSource> sources);
  // The worker did not respond, so its engine may have restarted.
  void ReportOutage(WorkerId worker);
  // Drops what is known of the worker and asks its sources for everything.
  void Resync(WorkerId worker);

  std::vector<KvSourceStatus> Report() const;

 private:
  struct Impl;
  explicit EventSubscriber(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace vllm_router
