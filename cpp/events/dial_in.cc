#include "events/dial_in.h"

#include <algorithm>
#include <tuple>

#include "base/log.h"
#include "base/text.h"
#include "events/source_session.h"

namespace vllm_router {
namespace {

constexpr size_t kLoggedTopic = 128;  // bytes of it

// What a publisher that floods can make us hold: such a source has no replay, only restarts too many at once.
constexpr SourceStateOptions kFeedOptions = {
    .has_replay = false, .max_held_batches = 256, .max_held_bytes = size_t{8} << 20};

}  // namespace

DialIn::DialIn(std::vector<std::string> endpoints, ReportedBlocks* blocks, const ZmqContext& context)
    : blocks_(*blocks), context_(context) {
  for (std::string& endpoint : endpoints) {
    listeners_.emplace_back();
    listeners_.back().status.endpoint = endpoint;
    listeners_.back().wanted = std::move(endpoint);
  }
}

void DialIn::SetWorkers(std::vector<DialInWorker> workers) {
  if (workers == workers_) return;
  workers_ = std::move(workers);
  by_host_.clear();
  std::map<WorkerId, const DialInWorker*> by_id;
  for (const DialInWorker& worker : workers_) {
    by_host_.emplace(AsciiLower(worker.url.host), &worker);
    by_id.emplace(worker.worker, &worker);
  }
  const size_t ended = std::erase_if(feeds_, [&by_id](const auto& entry) {
    const auto found = by_id.find(entry.first.first);
    // Its blocks are known under a model's name.
    return found == by_id.end() || found->second->model != entry.second.feed->source().model;
  });
  if (ended != 0) ++version_;
  std::erase_if(limited_, [&by_id](WorkerId worker) { return !by_id.contains(worker); });
}

void DialIn::Maintain(int64_t now_ns) {
  if (maintain_ns_ && now_ns < *maintain_ns_) return;
  maintain_ns_ = now_ns + kMaintainNanos;
  for (Listener& listener : listeners_) {
    if (!listener.socket) Bind(&listener);
  }
  const size_t ended = std::erase_if(feeds_, [now_ns](const auto& entry) {
    return entry.second.lost_ns && now_ns - *entry.second.lost_ns >= kExpireNanos;
  });
  if (ended != 0) ++version_;
}

Status DialIn::Open(Listener* listener) const {
  ZmqOptions options = PublisherOptions(listener->wanted);
  options.subscriptions = {std::string(kDialInTopicPrefix)};
  StatusOr<ZmqSocket> socket = ZmqSocket::Open(context_, ZmqSocketType::kSub, options);
  if (!socket.ok()) return socket.status();
  StatusOr<ZmqMonitor> monitor = ZmqMonitor::Open(*socket, /*with_accepted=*/true);
  if (!monitor.ok()) return monitor.status();
  ROUTER_RETURN_IF_ERROR(socket->Bind(listener->wanted));
  listener->socket = *std::move(socket);
  listener->monitor = *std::move(monitor);
  return absl::OkStatus();
}

void DialIn::Bind(Listener* listener) {
  const Status status = Open(listener);
  if (!status.ok()) {
    std::string failure(status.message());
    if (failure == listener->failure) return;
    listener->failure = std::move(failure);
    Log(LogLevel::kError, Concat(
                              "kv events: --kv-events-bind ", listener->wanted, " cannot be bound: ",
                              listener->failure, "; publishers that connect are not heard until it can"));
    return;
  }
  listener->failure.clear();
  listener->status.endpoint = listener->socket->last_endpoint();
  listener->status.bound = true;
  Log(LogLevel::kInfo,
      Concat(
          "kv events: publishers may connect to ", listener->status.endpoint, ", topic kv@HOST:PORT@MODEL"));
}

void DialIn::AppendTo(std::vector<ZmqPollItem>* items) {
  first_item_ = items->size();
  for (Listener& listener : listeners_) {
    listener.polled = listener.socket.has_value();
    if (!listener.polled) continue;
    items->push_back({.socket = &listener.monitor->socket()});
    items->push_back({.socket = &*listener.socket});
  }
}

bool DialIn::Receive(std::span<const ZmqPollItem> items, int64_t now_ns) {
  size_t item = first_item_;
  bool more = false;
  for (Listener& listener : listeners_) {
    if (!listener.polled) continue;
    ZmqEvent event;
    if (items[item++].readable) {
      while (listener.monitor->Next(&event)) {
        // One that has its number comes after it: what is read from now on may be the new one's.
        if (event.kind == ZmqEvent::Kind::kAccepted) EndLostConnection(&listener, event.connection, now_ns);
        if (event.kind == ZmqEvent::Kind::kDisconnected) listener.lost.emplace(event.connection, now_ns);
      }
    }
    const bool is_readable = items[item++].readable || !listener.lost.empty();
    const bool has_more = is_readable && ReceiveFrom(&listener, now_ns);
    EndLostConnections(&listener, !has_more, now_ns);
    more = more || has_more;
  }
  LimitWaiting();
  return more;
}

bool DialIn::ReceiveFrom(Listener* listener, int64_t now_ns) {
  size_t bytes = 0;
  for (size_t i = 0; i < SourceSession::kTurnMessages && bytes < SourceSession::kTurnBytes; ++i) {
    int connection = -1;
    const ZmqReceive received = listener->socket->Receive(kMaxPublisherFrames, &frames_, &connection);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return false;
    const std::optional<uint64_t> number = NumberOfBatch(received, frames_);
    if (!number) {
      ++listener->status.malformed;
      continue;
    }
    bytes += frames_[2].size();
    Feed* const feed = FeedOf(frames_[0], frames_[2], listener, now_ns);
    if (feed == nullptr) continue;
    // The loss of the one before was not told, and how long it lasted is not known.
    if (connection != feed->connection) feed->feed->OnDisconnected(feed->heard_ns);
    feed->connection = connection;
    feed->heard_ns = now_ns;
    feed->lost_ns.reset();
    if (!feed->feed->connected()) feed->feed->OnConnected(now_ns);
    feed->feed->OnBatch(*number, frames_[2], now_ns);
  }
  return true;
}

void DialIn::EndLostConnections(Listener* listener, bool is_drained, int64_t now_ns) {
  std::vector<int> ended;
  for (const auto& [connection, since_ns] : listener->lost) {
    if (is_drained || now_ns - since_ns >= kDrainNanos) ended.push_back(connection);
  }
  for (const int connection : ended) EndLostConnection(listener, connection, now_ns);
}

void DialIn::EndLostConnection(Listener* listener, int connection, int64_t now_ns) {
  if (listener->lost.erase(connection) == 0) return;
  for (auto& [key, feed] : feeds_) {
    if (feed.connection != connection) continue;
    feed.connection = -1;
    feed.lost_ns = now_ns;
    feed.feed->OnDisconnected(now_ns);
    feed.feed->OnGone();
  }
}

DialIn::Feed* DialIn::FeedOf(
    std::string_view topic, std::string_view payload, Listener* listener, int64_t now_ns) {
  const auto refuse = [&](std::string_view why) {
    ++listener->status.unknown_worker;
    WarnOfUnknown(*listener, topic, why, now_ns);
    return nullptr;
  };
  const std::optional<DialInTopic> parsed = ParseDialInTopic(topic);
  if (!parsed) return refuse("is not kv@HOST:PORT@MODEL, with the host and port that the worker's URL has");
  std::optional<int64_t> told;
  if (!ReadBatchRank({reinterpret_cast<const uint8_t*>(payload.data()), payload.size()}, &told)) {
    ++listener->status.malformed;
    return nullptr;
  }
  const int64_t rank = told.value_or(0);
  if (rank < 0 || rank >= kMaxKvRanks) return refuse("comes with a data-parallel rank that is not 0 to 255");
  std::string_view why;
  const DialInWorker* const worker = WorkerOf(*parsed, static_cast<uint32_t>(rank), &why);
  if (worker == nullptr) return refuse(why);
  const Key key(worker->worker, static_cast<uint32_t>(rank));
  const auto found = feeds_.find(key);
  if (found != feeds_.end()) return &found->second;
  if (!MakeRoom(worker->worker)) {
    static const std::string kTooMany =
        Concat("is one source more than the ", kMaxFeeds, " that may connect");
    limited_.insert(worker->worker);
    return refuse(kTooMany);
  }
  ++version_;
  KvSource source{
      .worker = worker->worker,
      .url = worker->url.url,
      .rank = key.second,
      .endpoint = listener->status.endpoint,
      .topic = std::string(topic.substr(0, kLoggedTopic)),
      .model = worker->model};
  Feed feed{.feed = std::make_unique<SourceFeed>(std::move(source), &blocks_, kFeedOptions)};
  return &feeds_.emplace(key, std::move(feed)).first->second;
}

bool DialIn::MakeRoom(WorkerId worker) {
  if (feeds_.size() < kMaxFeeds) return true;
  std::map<WorkerId, size_t> counts;
  for (const auto& [key, feed] : feeds_) ++counts[key.first];
  // First those whose connections are lost, then those of the worker with the most, then by time.
  const auto rank = [&counts](const auto& entry) {
    return std::tuple(
        !entry.second.lost_ns, -static_cast<int64_t>(counts[entry.first.first]), entry.second.heard_ns);
  };
  const auto first = std::ranges::min_element(feeds_, {}, rank);
  if (!first->second.lost_ns && counts[first->first.first] <= counts[worker] + 1) return false;
  EndByLimit(first);
  return true;
}

void DialIn::LimitWaiting() {
  const auto waiting = [](const auto& entry) { return entry.second.feed->waiting_bytes(); };
  size_t bytes = 0;
  for (const auto& entry : feeds_) bytes += waiting(entry);
  while (bytes > kMaxWaitingBytes) {
    const auto most = std::ranges::max_element(feeds_, {}, waiting);
    bytes -= waiting(*most);
    EndByLimit(most);
  }
}

void DialIn::EndByLimit(std::map<Key, Feed>::iterator feed) {
  limited_.insert(feed->first.first);
  feeds_.erase(feed);
  ++version_;
}

const DialInWorker* DialIn::WorkerOf(const DialInTopic& topic, uint32_t rank, std::string_view* why) const {
  *why = "names no worker of the fleet whose model is known";
  const DialInWorker* only = nullptr;
  const auto [begin, end] = by_host_.equal_range(AsciiLower(topic.host));
  for (auto it = begin; it != end; ++it) {
    const DialInWorker& worker = *it->second;
    if (topic.port && *topic.port != worker.url.port) continue;
    if (worker.url.rank && *worker.url.rank != rank) continue;
    if (only != nullptr) {
      *why = "names a host on which several workers are; add the worker's port: kv@HOST:PORT@MODEL";
      return nullptr;
    }
    only = &worker;
  }
  return only;
}

void DialIn::WarnOfUnknown(
    const Listener& listener, std::string_view topic, std::string_view why, int64_t now_ns) {
  if (warned_ns_ && now_ns - *warned_ns_ < kWarnAgainNanos) return;
  warned_ns_ = now_ns;
  Log(LogLevel::kWarning, Concat(
                              "kv events: a topic at ", listener.status.endpoint, ", ",
                              Quoted(topic.substr(0, kLoggedTopic)), ", ", why, "; its events are not used"));
}

void DialIn::Disconnect(WorkerId worker, int64_t now_ns) {
  for (auto entry = feeds_.lower_bound({worker, 0}); entry != feeds_.end() && entry->first.first == worker;
       ++entry) {
    entry->second.feed->OnDisconnected(now_ns);
    entry->second.feed->OnGone();
  }
}

std::vector<SourceFeed*> DialIn::feeds() const {
  std::vector<SourceFeed*> feeds;
  for (const auto& [key, entry] : feeds_) feeds.push_back(entry.feed.get());
  return feeds;
}

std::vector<DialInStatus> DialIn::Report() const {
  std::vector<DialInStatus> statuses;
  for (const Listener& listener : listeners_) statuses.push_back(listener.status);
  return statuses;
}

}  // namespace vllm_router
