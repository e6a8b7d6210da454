#include "proxy/events/prefix_event_service.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/sse_reader.h"
#include "policy/decision.h"
#include "policy/kv_index.h"
#include "proxy/api/server_options.h"
#include "proxy/client/http_client.h"
#include "proxy/events/events_feature.h"
#include "proxy/events/redis_prefix_index.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr std::string_view kEventStream = "text/event-stream";
constexpr int64_t kQuietNanos = 60 * kNanosPerSecond;  // between two log lines about a source

// What is there will not be there in a moment.
bool IsRejection(int status) { return status == 401 || status == 403 || status == 404; }

}  // namespace

struct PrefixEventService::Stream {
  Stream(size_t number, PrefixSource given)
      : number(number), source(std::move(given)), delay(source.reconnect_ms * kNanosPerMs) {
    status.name = source.name;
  }

  // At most one line per minute, so that a source that fails all the time does not fill the log.
  void Warn(int64_t now_ns, std::string_view text) {
    if (logged_ns && now_ns - *logged_ns < kQuietNanos) return;
    logged_ns = now_ns;
    Log(LogLevel::kWarning, Concat("kv index: ", text));
  }

  const size_t number;
  const PrefixSource source;
  PrefixSourceStatus status;
  ReconnectDelay delay;
  std::string last_event_id;
  std::shared_ptr<Worker> worker;   // whose events they are, by the fleet; null: it has none
  std::optional<WorkerId> follows;  // whose stream is read; nullopt: no coroutine runs
  CancelScope* scope = nullptr;     // while one runs
  std::optional<int64_t> logged_ns;
};

// A response of the source: events from it, while they come.
class PrefixEventService::Sink final : public ResponseSink {
 public:
  Sink(PrefixEventService& service, Stream& stream, WorkerId worker)
      : service_(service), stream_(stream), worker_(worker), reader_(kMaxSseEventBytes) {}

  bool OnHead(const ResponseHead& head) override {
    http_status_ = head.status;
    if (head.status != 200 || !head.event_stream) return false;
    connected_ns_ = Now();
    stream_.status.connected = true;
    stream_.status.failed = false;
    service_.SetStatus(stream_.number, stream_.status);
    Log(LogLevel::kInfo, Concat("kv index: source ", Quoted(stream_.source.name), " is connected"));
    return true;
  }

  bool OnData(std::string_view bytes) override {
    PrefixSourceStatus& status = stream_.status;
    const uint64_t before = status.received;
    SseReader::Step step;
    while ((step = reader_.Next(&bytes)) == SseReader::Step::kEvent) Take(reader_.type(), reader_.data());
    if (step == SseReader::Step::kTooLong) {
      too_long_ = true;
      ++status.received;
      ++status.dropped;
    }
    if (status.received != before) {
      status.last_event_secs = static_cast<int64_t>(UnixSeconds());
      service_.SetStatus(stream_.number, status);
    }
    return !too_long_;
  }

  bool rejected() const { return IsRejection(http_status_) || (http_status_ == 200 && !connected_ns_); }
  bool too_long() const { return too_long_; }
  int64_t good_ns() const { return connected_ns_ ? Now() - *connected_ns_ : 0; }
  const SseReader& reader() const { return reader_; }

  std::string Reason(const Status& status) const {
    if (too_long_) return Concat("sent an event of more than ", kMaxSseEventBytes, " bytes");
    if (http_status_ == 200 && !connected_ns_)
      return "responds with a content type other than text/event-stream";
    if (http_status_ != 0 && !connected_ns_) return Concat("responds with status ", http_status_);
    if (absl::IsDeadlineExceeded(status)) return Concat("sent nothing for ", kSilentMs / 1000, " s");
    if (!status.ok()) return Concat("failed: ", std::string(status.message()));
    return "ended its stream";
  }

 private:
  int64_t Now() const { return service_.thread_.clock.NowNanos(); }

  void Take(std::string_view type, std::string_view data) {
    PrefixSourceStatus& status = stream_.status;
    ++status.received;
    const PrefixEventOrProblem read = ReadPrefixEvent(type, data);
    std::vector<Digest256> forgotten;
    if (!read.event || !ApplyPrefixEvent(*read.event, worker_, Now(), service_.table_, &forgotten)) {
      ++status.dropped;
      if (!read.event) {
        stream_.Warn(
            Now(), Concat(
                       "source ", Quoted(stream_.source.name), " sent an event that ", read.problem,
                       "; it is not used"));
      }
      return;
    }
    service_.Share(*read.event, stream_.source.name, worker_, std::move(forgotten));
    ++status.processed;
    ++(IsOnGpu(read.event->kind) ? status.created : status.evicted);
  }

  PrefixEventService& service_;
  Stream& stream_;
  const WorkerId worker_;
  SseReader reader_;
  int http_status_ = 0;
  std::optional<int64_t> connected_ns_;
  bool too_long_ = false;
};

PrefixEventService::PrefixEventService(IoThread& thread)
    : HostPoller(thread),
      table_(PrefixTableOf(*thread.router)),
      shared_(thread.features.Find<RedisPrefixIndex>()) {
  if (table_ == nullptr) return;
  const MutexLock lock(mutex_);
  // Server::Start has checked them.
  for (const std::string& text : thread_.options.kv_prefix_sources) {
    StatusOr<PrefixSource> source = ParsePrefixSource("kv_prefix_source", text);
    if (!source.ok()) continue;
    streams_.push_back(std::make_shared<Stream>(streams_.size(), *std::move(source)));
    report_.push_back(streams_.back()->status);
  }
}

void PrefixEventService::Start() {
  if (table_ != nullptr) return Begin();
  if (thread_.options.kv_prefix_sources.empty()) return;
  Log(LogLevel::kWarning,
      Concat(
          "kv index: --kv-prefix-source has no effect without a prefix index; set --kv-index-max-entries",
          thread_.router->pool().index() == nullptr ? ", and a policy that matches blocks" : ""));
}

void PrefixEventService::Stop() {
  HostPoller::Stop();
  for (const std::shared_ptr<Stream>& stream : streams_) {
    if (stream->scope != nullptr) stream->scope->Cancel();
  }
}

std::vector<PrefixSourceStatus> PrefixEventService::Report() const {
  const MutexLock lock(mutex_);
  return report_;
}

void PrefixEventService::SetStatus(size_t number, const PrefixSourceStatus& status) {
  const MutexLock lock(mutex_);
  report_[number] = status;
}

void PrefixEventService::Share(
    const PrefixEvent& event, const std::string& source, WorkerId worker, std::vector<Digest256> forgotten) {
  if (shared_ == nullptr) return;
  if (event.prefix) {
    shared_->Write(source, worker, *event.prefix);
  } else {
    Spawn(Purge(source, worker, std::move(forgotten)));
  }
}

Task<void> PrefixEventService::Purge(std::string source, WorkerId worker, std::vector<Digest256> prefixes) {
  const UnderWay under_way(*this);
  co_await shared_->Purge(std::move(source), worker, std::move(prefixes));
}

int64_t PrefixEventService::Pass(const FleetView& fleet) {
  const int64_t now = thread_.clock.NowNanos();
  table_->Sweep(now, kSweptPerLook);
  if (shared_ != nullptr) shared_->Flush();
  if (membership_ != fleet.membership_version()) {
    membership_ = fleet.membership_version();
    for (const std::shared_ptr<Stream>& stream : streams_) {
      const StatusOr<uint32_t> position = FindWorkerOf(stream->source, fleet);
      stream->worker = position.ok() ? fleet.members()[*position].worker : nullptr;
      if (!position.ok()) stream->Warn(now, std::string(position.status().message()));
    }
  }
  for (const std::shared_ptr<Stream>& stream : streams_) {
    const std::shared_ptr<Worker>& worker = stream->worker;
    if (stream->follows) {
      // It starts again once this has ended.
      if (worker == nullptr || worker->id != *stream->follows) stream->scope->Cancel();
    } else if (worker != nullptr) {
      stream->follows = worker->id;
      Spawn(Follow(stream, worker));
    }
  }
  return kLookNanos;
}

Task<void> PrefixEventService::Follow(std::shared_ptr<Stream> stream, std::shared_ptr<Worker> worker) {
  const UnderWay under_way(*this);
  const PrefixSource& source = stream->source;
  WorkerUrl url = source.endpoint;
  // The workers' key is for the worker's host, and not for the open network if the worker has TLS.
  url.receives_api_key = worker->url.receives_api_key && EqualsIgnoreCase(url.host, worker->url.host) &&
                         (url.tls || !worker->url.tls);
  CancelScope scope({});
  stream->scope = &scope;
  stream->last_event_id.clear();  // of another worker's stream
  while (!scope.cancelled()) {
    Sink sink(*this, *stream, worker->id);
    const Status status = co_await thread_.http.Stream(
        &scope, url, source.target, kEventStream, stream->last_event_id, kSilentMs, &sink);
    stream->status.connected = false;
    stream->status.failed = sink.rejected() || sink.too_long();
    if (!sink.reader().last_id().empty()) stream->last_event_id = sink.reader().last_id();
    if (const std::optional<uint64_t> retry = sink.reader().retry_ms())
      stream->delay.SetFirst(static_cast<int64_t>(std::min<uint64_t>(*retry, 60'000)) * kNanosPerMs);
    SetStatus(stream->number, stream->status);
    if (scope.cancelled()) break;
    stream->Warn(
        thread_.clock.NowNanos(),
        Concat("source ", Quoted(source.name), " ", sink.Reason(status), "; it is requested again"));
    const double share = static_cast<double>(thread_.ids.Below(1'000)) / 1'000;
    const int64_t pause = stream->delay.Next(sink.good_ns(), sink.rejected(), share);
    const bool goes_on = co_await scope.Pause(thread_.loop, pause);
    if (!goes_on) break;
    ++stream->status.reconnects;
    SetStatus(stream->number, stream->status);
  }
  stream->scope = nullptr;
  stream->follows = std::nullopt;
}

void PrefixEventService::WriteMetrics(MetricsPage* page) const {
  if (table_ == nullptr) return;
  using Status = PrefixSourceStatus;
  const std::vector<Status> sources = Report();
  const auto each = [&](auto value) {
    for (const Status& status : sources) page->Add(value(status), {{"backend", status.name}});
  };
  const auto both = [&](std::string_view label, std::string_view word, const Status& status, uint64_t value) {
    page->Add(value, {{"backend", status.name}, {label, word}});
  };
  page->Counter("continuum_kv_event_received_total", "Events about prefixes received from the source.");
  each([](const Status& status) { return status.received; });
  page->Counter(
      "continuum_kv_event_processed_total",
      "Events about prefixes from the source that were applied to the prefix index.");
  each([](const Status& status) { return status.processed; });
  page->Counter(
      "continuum_kv_event_dropped_total",
      "Events about prefixes that could not be used: of an unknown kind, malformed, over 1 MiB, or of a "
      "worker that has left.");
  each([](const Status& status) { return status.dropped; });
  page->Gauge("continuum_kv_consumer_connected", "1 while the router reads the source's stream of events.");
  each([](const Status& status) { return status.connected ? 1 : 0; });
  page->Counter(
      "continuum_kv_consumer_reconnects_total",
      "Attempts to connect to the source of events about prefixes after the first one.");
  each([](const Status& status) { return status.reconnects; });
  page->Gauge(
      "continuum_kv_index_entries",
      "Workers of prefixes in the prefix index, expired ones until they are swept.");
  page->Add(table_->stats().entries);
  page->Counter(
      "continuum_kv_index_events_total",
      "Changes of the prefix index by events: a prefix came to a GPU (created), or left it (evicted).");
  for (const Status& status : sources) {
    both("type", "created", status, status.created);
    both("type", "evicted", status, status.evicted);
  }
  page->Gauge(
      "continuum_kv_index_event_source_status",
      "1 for the state of the source of events about prefixes: connected, disconnected or error (rejected, "
      "no event stream, or an event over 1 MiB); 0 for the others.");
  for (const Status& status : sources) {
    both("status", "connected", status, status.connected ? 1 : 0);
    both("status", "disconnected", status, !status.connected && !status.failed ? 1 : 0);
    both("status", "error", status, status.failed ? 1 : 0);
  }
}

}  // namespace vllm_router
