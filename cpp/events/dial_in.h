// DialIn: hears publishers of KV events that connect to the router, as engines behind an address translation do.
//
//   PUB of w1 --.
//   PUB of w2 --+--> bound SUB --(topic, rank)--> a SourceFeed of each
//   PUB of w3 --'
//
// All publishers share a socket, so nothing tells when one of them connects, and there is no replay: a batch that
// is missing stays lost, and a worker whose health check fails may have restarted. Sequence numbers are of a
// worker's rank, which the payload names. Messages about workers that are not in the fleet are counted.
//
// Bounded: kMaxKvRanks feeds of a worker, kMaxFeeds in all, and per turn as many messages as of one source. libzmq
// takes turns among the peers of a socket, so one that floods delays the others by at most its share.
//
// On the events thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "events/dial_in_topic.h"
#include "events/source_feed.h"
#include "index/reported_blocks.h"
#include "net/zmq_socket.h"
#include "worker/worker.h"

namespace vllm_router {

class DialIn {
 public:
  static constexpr size_t kMaxFeeds = 4096;
  static constexpr int64_t kBindAgainNanos = 10'000'000'000;
  static constexpr int64_t kWarnAgainNanos = 60'000'000'000;

  DialIn(std::vector<std::string> endpoints, ReportedBlocks* blocks, const ZmqContext& context);

  // Feeds of workers that are not among these end.
  void SetWorkers(std::vector<DialInWorker> workers);

  // Binds what is not bound, now and then.
  void BindAll(int64_t now_ns);
  void AppendTo(std::vector<ZmqPollItem>* items);
  // Handles what the sockets have, at most a turn's share of each. True: there may be more.
  bool Receive(std::span<const ZmqPollItem> items, int64_t now_ns);
  void ReportOutage(WorkerId worker, int64_t now_ns);

  // Changes with feeds().
  uint64_t version() const { return version_; }
  std::vector<SourceFeed*> feeds() const;
  std::vector<DialInStatus> Report() const;

 private:
  struct Listener {
    std::string wanted;
    std::optional<ZmqSocket> socket;
    DialInStatus status;
    std::string failure;  // that was logged
    bool polled = false;  // it was in the last AppendTo()
  };

  void Bind(Listener* listener);
  bool ReceiveFrom(Listener* listener, int64_t now_ns);
  // Null: the topic names no worker, or several, or there are too many feeds.
  SourceFeed* FeedOf(std::string_view topic, std::string_view payload, Listener* listener, int64_t now_ns);
  const DialInWorker* WorkerOf(const DialInTopic& topic, uint32_t rank, std::string_view* why) const;
  void WarnOfUnknown(const Listener& listener, std::string_view topic, std::string_view why, int64_t now_ns);

  ReportedBlocks& blocks_;
  const ZmqContext& context_;
  std::vector<Listener> listeners_;
  std::vector<DialInWorker> workers_;
  std::multimap<std::string, const DialInWorker*, std::less<>> by_host_;
  std::map<std::pair<WorkerId, uint32_t>, std::unique_ptr<SourceFeed>> feeds_;  // by worker and rank
  uint64_t version_ = 0;
  size_t first_item_ = 0;
  std::optional<int64_t> bind_again_ns_;
  std::optional<int64_t> warned_ns_;
  std::vector<std::string> frames_;  // reused
};

}  // namespace vllm_router
