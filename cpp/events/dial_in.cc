#include "events/dial_in.h"

#include <algorithm>

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
    return found == by_id.end() || found->second->model != entry.second->source().model;
  });
  if (ended != 0) ++version_;
}

void DialIn::BindAll(int64_t now_ns) {
  if (bind_again_ns_ && now_ns < *bind_again_ns_) return;
  bind_again_ns_ = now_ns + kBindAgainNanos;
  for (Listener& listener : listeners_) {
    if (!listener.socket) Bind(&listener);
  }
}

void DialIn::Bind(Listener* listener) {
  ZmqOptions options = PublisherOptions(listener->wanted);
  options.subscriptions = {std::string(kDialInTopicPrefix)};
  StatusOr<ZmqSocket> socket = ZmqSocket::Open(context_, ZmqSocketType::kSub, options);
  const Status status = socket.ok() ? socket->Bind(listener->wanted) : socket.status();
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
  listener->socket = *std::move(socket);
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
    if (listener.polled) items->push_back({.socket = &*listener.socket});
  }
}

bool DialIn::Receive(std::span<const ZmqPollItem> items, int64_t now_ns) {
  size_t item = first_item_;
  bool more = false;
  for (Listener& listener : listeners_) {
    if (listener.polled && items[item++].readable && ReceiveFrom(&listener, now_ns)) more = true;
  }
  return more;
}

bool DialIn::ReceiveFrom(Listener* listener, int64_t now_ns) {
  size_t bytes = 0;
  for (size_t i = 0; i < SourceSession::kTurnMessages && bytes < SourceSession::kTurnBytes; ++i) {
    const ZmqReceive received = listener->socket->Receive(kMaxPublisherFrames, &frames_);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return false;
    const std::optional<uint64_t> number =
        received == ZmqReceive::kMessage && frames_.size() == 3 ? NumberInFrame(frames_[1]) : std::nullopt;
    if (!number) {
      ++listener->status.malformed;
      continue;
    }
    bytes += frames_[2].size();
    SourceFeed* const feed = FeedOf(frames_[0], frames_[2], listener, now_ns);
    if (feed == nullptr) continue;
    if (!feed->connected()) feed->OnConnected(now_ns);
    feed->OnBatch(*number, frames_[2], now_ns);
  }
  return true;
}

SourceFeed* DialIn::FeedOf(
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
  const std::pair<WorkerId, uint32_t> key(worker->worker, static_cast<uint32_t>(rank));
  const auto found = feeds_.find(key);
  if (found != feeds_.end()) return found->second.get();
  if (feeds_.size() == kMaxFeeds) return refuse("is one source more than the 4096 that may connect");
  ++version_;
  return feeds_
      .emplace(
          key, std::make_unique<SourceFeed>(
                   KvSource{
                       .worker = worker->worker,
                       .url = worker->url.url,
                       .rank = key.second,
                       .endpoint = listener->status.endpoint,
                       .topic = std::string(topic.substr(0, kLoggedTopic)),
                       .model = worker->model},
                   &blocks_, kFeedOptions))
      .first->second.get();
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

void DialIn::ReportOutage(WorkerId worker, int64_t now_ns) {
  for (auto feed = feeds_.lower_bound({worker, 0}); feed != feeds_.end() && feed->first.first == worker;
       ++feed) {
    feed->second->ReportOutage(now_ns);
    feed->second->OnDisconnected(now_ns);
  }
}

std::vector<SourceFeed*> DialIn::feeds() const {
  std::vector<SourceFeed*> feeds;
  for (const auto& [key, feed] : feeds_) feeds.push_back(feed.get());
  return feeds;
}

std::vector<DialInStatus> DialIn::Report() const {
  std::vector<DialInStatus> statuses;
  for (const Listener& listener : listeners_) statuses.push_back(listener.status);
  return statuses;
}

}  // namespace vllm_router
