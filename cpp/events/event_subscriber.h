// EventSubscriber: the events thread. It hears the KV events of every source over ZeroMQ and is the only
// writer of what workers report (ReportedBlocks).
//
//   PUB  of an engine ----> SUB ----.
//   ROUTER of an engine <-> DEALER --+-> SourceFeed: what to apply, replay, forget -> EventApplier -> ReportedBlocks
//   PUBs that connect ----> DialIn --'
//
// A source that floods, stalls or lies affects its own worker only: per turn each source gets
// SourceSession::kTurnMessages, a batch that cannot be decoded counts as lost, and the trust of a worker falls to what its
// worst source deserves (WorkerTrust).
//
// All methods from any thread, and none waits for a turn: a change of the sources takes effect in the next
// one, and Report() is a turn or 50 ms old.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "events/dial_in_topic.h"
#include "events/kv_source.h"
#include "index/reported_blocks.h"

namespace vllm_router {

struct EventSubscriberOptions {
  size_t parallel_replays = 8;
  std::vector<std::string> bind_endpoints = {};  // to which publishers may connect
};

class EventSubscriber {
 public:
  // `blocks` outlives it. kResourceExhausted if the thread or its sockets cannot be made.
  static StatusOr<std::unique_ptr<EventSubscriber>> Start(
      ReportedBlocks* blocks, const EventSubscriberOptions& options = {});
  ~EventSubscriber();

  // The sources from now on; those that are the same go on.
  void SetSources(std::vector<KvSource> sources);
  // Those whose publishers may connect from now on.
  void SetDialInWorkers(std::vector<DialInWorker> workers);
  // The worker did not respond, so its engine may have restarted.
  void ReportOutage(WorkerId worker);
  // Drops what is known of the worker and asks its sources for everything.
  void Resync(WorkerId worker);

  std::vector<KvSourceStatus> Report() const;
  std::vector<DialInStatus> DialInReport() const;  // of each endpoint that is bound or shall be

 private:
  struct Impl;
  explicit EventSubscriber(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace vllm_router
