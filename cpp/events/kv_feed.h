// KvFeed: one way in which the KV events of workers reach the index. KvEventService says which sources there are, and treats
// all feeds alike:
//
//   ZmqFeed         engines publish over ZeroMQ: the router connects, or they do (DialIn)
//   TrtllmPoller    TensorRT-LLM is polled
//
// Events that come as requests (KvPushReceiver) have no source that could be found, lost or asked again.
#pragma once

#include <string_view>
#include <vector>

#include "events/dial_in_topic.h"
#include "events/kv_source.h"
#include "worker/worker.h"

namespace vllm_router {

class KvFeed {
 public:
  // All that are known; a feed takes those of its kind. Those that are the same go on.
  struct Sources {
    std::vector<KvSource> named;            // those of a worker follow each other
    std::vector<DialInWorker> may_connect;  // workers whose publishers may connect
  };

  virtual ~KvFeed() = default;

  // On one thread, until Stop(). True: the feed runs, since it has had sources.
  virtual bool Follow(const Sources& sources) = 0;
  // The worker did not respond, so its engine may have restarted.
  virtual void ReportOutage(WorkerId worker) = 0;
  virtual void Stop() = 0;

  // Any thread. Drops what is known of the worker and asks its sources for all of it; false: it has none here.
  virtual bool Resync(std::string_view worker_url) = 0;
  virtual std::vector<KvSourceStatus> Report() const = 0;

 protected:
  // Those of the kind become `known`; false: they are already.
  static bool TakeKind(const std::vector<KvSource>& all, KvSourceKind kind, std::vector<KvSource>* known);
};

}  // namespace vllm_router
