// DialIn: hears publishers of KV events that connect to the router, as engines behind an address translation do.
//
//   PUB of w1 --.
//   PUB of w2 --+--> bound SUB --(topic, rank)--> a SourceFeed of each
//   PUB of w3 --'
//
// All publishers share a socket, so a feed is connected once a batch of it comes, until the connection that its last
// one came by is lost, or the worker's health check fails, since it may have restarted then. What a feed that is
// not connected holds is not known, and kExpireNanos after its connection was lost it ends. There is no replay: a
// batch that is missing stays lost. Sequence numbers are of a worker's rank, which the payload names. Messages about
// workers that are not in the fleet are counted.
//
// Bounded: kMaxKvRanks feeds of a worker; kMaxFeeds in all, where one more ends one whose connection is lost, or
// else the one heard longest ago of the worker with the most, unless its own has as many; kMaxWaitingBytes of
// batches and events that wait for others, where the feed with the most of them ends; and per turn as many messages
// as of one source. libzmq takes turns among the peers of a socket, so one that floods delays the others by at most
// its share.
//
// On the events thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
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
  static constexpr size_t kMaxFeeds = 2048;  // of the kMaxWorkers caches that all sources share
  static constexpr size_t kMaxWaitingBytes = size_t{256} << 20;
  static constexpr int64_t kExpireNanos = 600'000'000'000;
  static constexpr int64_t kMaintainNanos = 10'000'000'000;
  // A lost connection's messages are read first, but no longer than this.
  static constexpr int64_t kDrainNanos = 1'000'000'000;
  static constexpr int64_t kWarnAgainNanos = 60'000'000'000;

  DialIn(std::vector<std::string> endpoints, ReportedBlocks* blocks, const ZmqContext& context);

  // Feeds of workers that are not among these end.
  void SetWorkers(std::vector<DialInWorker> workers);

  // Now and then: binds what is not bound, and ends the feeds whose connections were lost long ago.
  void Maintain(int64_t now_ns);
  void AppendTo(std::vector<ZmqPollItem>* items);
  // Handles what the sockets have, at most a turn's share of each. True: there may be more.
  bool Receive(std::span<const ZmqPollItem> items, int64_t now_ns);
  // Nothing tells whether the worker's publishers are still those that were connected.
  void Disconnect(WorkerId worker, int64_t now_ns);

  // A limit ended a feed of the worker, or refused one: what its other ranks hold is not all of it.
  bool is_limited(WorkerId worker) const { return limited_.contains(worker); }

  // Changes with feeds().
  uint64_t version() const { return version_; }
  std::vector<SourceFeed*> feeds() const;
  std::vector<DialInStatus> Report() const;

 private:
  struct Listener {
    std::string wanted;
    std::optional<ZmqSocket> socket;
    std::optional<ZmqMonitor> monitor;
    std::map<int, int64_t> lost;  // connections, and since when
    DialInStatus status;
    std::string failure;  // that was logged
    bool polled = false;  // it was in the last AppendTo()
  };

  using Key = std::pair<WorkerId, uint32_t>;  // a worker and its rank
  struct Feed {
    std::unique_ptr<SourceFeed> feed;
    int connection = -1;  // by which its last batch came
    int64_t heard_ns = 0;
    std::optional<int64_t> lost_ns = {};  // when the connection was
  };

  Status Open(Listener* listener) const;
  void Bind(Listener* listener);
  bool ReceiveFrom(Listener* listener, int64_t now_ns);
  // After what they had sent was read. `is_drained`: the socket has nothing more.
  void EndLostConnections(Listener* listener, bool is_drained, int64_t now_ns);
  void EndLostConnection(Listener* listener, int connection, int64_t now_ns);  // if it is one
  // Null: the topic names no worker, or several, or there are too many feeds.
  Feed* FeedOf(std::string_view topic, std::string_view payload, Listener* listener, int64_t now_ns);
  // False: there is none.
  bool MakeRoom(WorkerId worker);
  void LimitWaiting();
  void EndByLimit(std::map<Key, Feed>::iterator feed);
  const DialInWorker* WorkerOf(const DialInTopic& topic, uint32_t rank, std::string_view* why) const;
  void WarnOfUnknown(const Listener& listener, std::string_view topic, std::string_view why, int64_t now_ns);

  ReportedBlocks& blocks_;
  const ZmqContext& context_;
  std::vector<Listener> listeners_;
  std::vector<DialInWorker> workers_;
  std::multimap<std::string, const DialInWorker*, std::less<>> by_host_;
  std::map<Key, Feed> feeds_;
  std::set<WorkerId> limited_;
  uint64_t version_ = 0;
  size_t first_item_ = 0;
  std::optional<int64_t> maintain_ns_;  // next
  std::optional<int64_t> warned_ns_;
  std::vector<std::string> frames_;  // reused
};

}  // namespace vllm_router
