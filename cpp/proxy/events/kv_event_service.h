// KvEventService finds the sources of KV events and keeps the events thread informed: which workers
// publish where, and which of them did not respond.
//
//   --kv-event-source http://w1:8000=tcp://w1:5557       as the operator says
//   GET /kv_event_sources, else GET /server_info          as the engine says; --kv-events auto and on
//   --kv-events-bind tcp://*:5557                         publishers connect, and name their worker in the topic
//   GET /v1/models                                        the base model's name, under which its blocks are known
//   --kv-events-engine trtllm                            the others are polled (trtllm_poller.h)
//
// A healthy host is polled when it joins or comes back and every kAgainNanos; one that does not respond, or
// with an error other than 404, after kSoonNanos, doubling up to a minute. One that is silent (worker_trust.h) may have
// been started again on other ports: it is polled at once, and then every kSilentAgainNanos. The service also drops
// predictions that are older than --kv-predict-ttl-secs, but for requests that wait for their first token. On
// the control thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "events/kv_feed.h"
#include "events/kv_source.h"
#include "index/reported_blocks.h"
#include "net/task.h"
#include "proxy/client/kv_source_report.h"
#include "proxy/control/host_poller.h"

namespace vllm_router {

class KvEventService final : public HostPoller {
 public:
  static constexpr int64_t kAgainNanos = 300'000'000'000;
  static constexpr int64_t kSoonNanos = 2'000'000'000;
  static constexpr int64_t kSilentAgainNanos = 30'000'000'000;
  static constexpr int64_t kLookNanos = 500'000'000;  // between looks at the fleet
  // As long a request that waits for its first token is predicted again.
  static constexpr int64_t kRepeatNanos = 60'000'000'000;

  // The feeds outlive it.
  KvEventService(IoThread& thread, std::vector<KvFeed*> feeds)
      : HostPoller(thread), feeds_(std::move(feeds)) {}

  void Start() override;
  void Stop() override;

  // Any thread; empty while there is no source.
  std::vector<KvSourceStatus> Report() const;
  void WriteMetrics(MetricsPage* page) const override;
  void AddConditions(const AddCondition& add) const override;
  // Drops what is known of the worker's cache, and asks for all of it. False: it has no source.
  bool Resync(std::string_view worker_url);

 private:
  struct Host {
    std::vector<WorkerId> workers;  // polled last; others are due at once
    int64_t due_ns = 0;
    int64_t silent_due_ns = 0;  // of the next poll of a silent one
    bool polling = false;
    int failures = 0;      // of polls, in a row
    bool polled = false;   // it responded once
    bool healthy = false;  // at the last look
    bool warned = false;
    bool warned_of_model = false;
    std::vector<ReportedSource> sources;
    std::vector<std::string> models;  // names of the base model
  };

  int64_t Pass(const FleetView& fleet) override;
  Task<void> Poll(std::shared_ptr<Host> host, Workers workers);
  bool polls() const;  // the workers whose endpoints are not named
  // At most once a minute: prompts whose text no worker turned into token ids.
  void WarnOfUnmatchedPrompts(int64_t now_ns);
  // What is known now, for the feeds and the index.
  void FollowSources(const Hosts& fleet);
  void WarnOfText();  // once, if no worker is asked for token ids
  std::string ModelOf(const Host& host, const ReportedBlocks::ModelNames& names) const;
  std::vector<KvSource> SourcesOf(const Worker& worker, const Host& host, const std::string& model) const;

  const std::vector<KvFeed*> feeds_;
  std::map<std::string, std::shared_ptr<Host>> hosts_;  // by base URL
  std::map<std::string, NamedEndpoints> named_;         // by worker's URL
  std::map<std::string, NamedEndpoints> named_replays_;
  int64_t rotated_ns_ = 0;
  uint64_t warned_of_prompts_ = 0;  // without token ids
  int64_t warned_of_prompts_ns_ = 0;
  bool warned_of_text_ = false;
  std::set<std::string> warned_of_unused_;
  ReportedBlocks::ModelNames model_names_;  // as the index has them
};

}  // namespace vllm_router
