// The room redis for tests: its codec, its health, and a link on a loop of its own.
#include <pybind11/stl.h>

#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "events/backend_names.h"
#include "proxy/peer_sync/peer_streams.h"
#include "redis/redis_command.h"
#include "redis/redis_error.h"
#include "redis/redis_health.h"
#include "redis/redis_link.h"
#include "redis/redis_url.h"
#include "redis/resp_reader.h"
#include "worker/worker_registry.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

py::bytes RedisBytes(std::string_view text) { return {text.data(), text.size()}; }

// Texts as bytes, others as ("status", bytes), ("error", bytes), an int, None and a list.
py::object PlainValue(RedisValue value) {
  switch (value.kind()) {
    case RedisValue::Kind::kText:
      return RedisBytes(value.text());
    case RedisValue::Kind::kStatus:
      return py::make_tuple("status", RedisBytes(value.text()));
    case RedisValue::Kind::kError:
      return py::make_tuple("error", RedisBytes(value.text()));
    case RedisValue::Kind::kInteger:
      return py::int_(value.integer());
    case RedisValue::Kind::kNil:
      return py::none();
    case RedisValue::Kind::kArray:
      break;
  }
  py::list elements;
  for (size_t i = 0; i < value.size(); ++i) elements.append(PlainValue(value[i]));
  return elements;
}

py::list PlainReplies(const std::vector<RedisReply>& replies) {
  py::list plain;
  for (const RedisReply& reply : replies) plain.append(PlainValue(reply.value()));
  return plain;
}

std::string JoinCommands(const std::vector<std::vector<std::string>>& commands) {
  std::string joined;
  for (const std::vector<std::string>& words : commands) {
    const std::vector<std::string_view> views(words.begin(), words.end());
    AppendRedisCommand(views, &joined);
  }
  return joined;
}

// What Feed() appended and, if it failed, why.
py::tuple FeedReader(RespReader& reader, const py::bytes& bytes) {
  std::vector<RedisReply> replies;
  const Status status = reader.Feed(std::string_view(bytes), &replies);
  return py::make_tuple(PlainReplies(replies), status.ok() ? "" : std::string(status.message()));
}

std::string_view NameOfState(RedisHealth::State state) {
  constexpr std::array<std::string_view, 4> kNames = {"connecting", "up", "down", "probing"};
  return kNames[static_cast<size_t>(state)];
}

using RedisFuture = std::shared_future<std::shared_ptr<RedisReplies>>;

class RedisCall {
 public:
  explicit RedisCall(RedisFuture future) : future_(std::move(future)) {}
  py::object Get(double patience) {
    std::future_status status{};
    {
      const py::gil_scoped_release release;
      status = future_.wait_for(std::chrono::duration<double>(patience));
    }
    if (status != std::future_status::ready) throw std::runtime_error("there was no reply in time");
    const RedisReplies& replies = *future_.get();
    if (replies.ok()) return PlainReplies(*replies);
    return py::str(
        std::string(NameOf(TypeOf(replies.status()))) + ": " + std::string(replies.status().message()));
  }

 private:
  RedisFuture future_;
};

class RedisLinkHarness {
 public:
  RedisLinkHarness(
      const std::string& url, size_t connections, bool probes, int64_t connect_timeout_ms,
      int64_t command_timeout_ms, uint32_t failures, const std::string& ca_file)
      : pool_(
            RedisOptions{
                .url = ValueOrThrow(ParseRedisUrl("url", url)),
                .connect_timeout_ms = connect_timeout_ms,
                .command_timeout_ms = command_timeout_ms,
                .failures = failures,
                .probe_key = "test:~probe"},
            url.starts_with("rediss")
                ? ValueOrThrow(TlsContext::Make(TlsContext::ForWorkers{.ca_path = ca_file}))
                : nullptr,
            clock_),
        resolver_(loop_),
        link_(
            pool_, loop_, buffers_, resolver_, connections,
            probes ? RedisLink::Role::kProbes : RedisLink::Role::kUses),
        thread_([this] { loop_.Run(); }) {
    loop_.Post([this] { link_.Start(); });
  }
  ~RedisLinkHarness() { Stop(); }

  // Returns the connections that did not end.
  uint32_t Stop() {
    if (!thread_.joinable()) return link_.running();
    const py::gil_scoped_release release;
    loop_.Post([this] { link_.Stop(); });
    for (int turns = 0; turns < 3'000 && Running() > 0; ++turns)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    loop_.Stop();
    thread_.join();
    return link_.running();
  }

  // None: not now.
  std::optional<RedisCall> Send(
      const std::vector<std::vector<std::string>>& commands, size_t replies, bool to_caller) {
    const py::gil_scoped_release release;
    auto result = std::make_shared<std::promise<std::shared_ptr<RedisReplies>>>();
    std::promise<bool> sent;
    loop_.Post([&] {
      RedisDone done = [result](RedisReplies received) {
        result->set_value(std::make_shared<RedisReplies>(std::move(received)));
      };
      sent.set_value(link_.Send(
          JoinCommands(commands), replies, std::move(done),
          to_caller ? RedisErrorsTo::kCaller : RedisErrorsTo::kPool));
    });
    if (!sent.get_future().get()) return std::nullopt;
    return RedisCall(result->get_future().share());
  }

  py::dict Stats() const {
    const RedisPool::Stats stats = pool_.stats();
    py::dict errors;
    for (size_t i = 0; i < stats.errors.size(); ++i)
      errors[py::str(std::string(NameOf(static_cast<RedisErrorType>(i))))] = stats.errors[i];
    uint64_t timed = 0;
    for (const uint64_t count : stats.latency) timed += count;
    using namespace py::literals;
    return py::dict(
        "active"_a = stats.active, "idle"_a = stats.idle, "errors"_a = errors, "commands"_a = timed,
        "fallback"_a = stats.fallback, "up"_a = pool_.up());
  }

 private:
  // After a whole turn of the loop, in which what was just posted has begun.
  uint32_t Running() {
    std::promise<uint32_t> running;
    loop_.Post([&] { running.set_value(link_.running()); });
    return running.get_future().get();
  }

  const SteadyClock clock_;
  RedisPool pool_;
  EventLoop loop_;
  BufferPool buffers_;
  Resolver resolver_;
  RedisLink link_;
  std::thread thread_;
};

// Of one router; rounds in, bytes out, and the bytes of replies in.
py::dict TakePeerReplies(
    PeerStreams& streams, const PeerStreams::Round& round, int64_t sent_ns, const py::bytes& bytes) {
  RespReader reader(PeerStreams::kMaxReplyBytes);
  std::vector<RedisReply> replies;
  ThrowIfError(reader.Feed(std::string_view(bytes), &replies));
  if (replies.size() != round.replies()) throw py::value_error("each command has one reply");
  PeerStreams::Heard heard;
  const Status status = streams.Take(round, sent_ns, replies, &heard);
  py::list frames;
  for (const std::string_view frame : heard.frames) frames.append(RedisBytes(frame));
  using namespace py::literals;
  return py::dict(
      "error"_a = std::string(status.message()), "unread"_a = std::string(heard.unread.message()),
      "frames"_a = frames, "more"_a = heard.more, "snapshot"_a = RedisBytes(heard.snapshot),
      "leased"_a = heard.leased, "bytes"_a = heard.bytes);
}

void BindPeerStreams(py::module_& testing) {
  py::class_<PeerStreams::Round>(testing, "PeerRound")
      .def(py::init<>())
      .def_property_readonly(
          "commands", [](const PeerStreams::Round& self) { return RedisBytes(self.commands()); })
      .def_property_readonly("replies", &PeerStreams::Round::replies);
  py::class_<PeerStreams>(testing, "PeerStreams")
      .def(
          py::init<std::string_view, uint64_t, uint64_t>(), py::arg("fleet"), py::arg("router"),
          py::arg("fingerprint"))
      .def_static("draw_router", &PeerStreams::DrawRouter)
      .def_static("started_ms", &PeerStreams::StartedMs)
      .def_static("add_time", &PeerStreams::AddTime)
      .def(
          "add_frames", [](const PeerStreams& self, const std::vector<std::string>& frames, int64_t now_ns,
                           PeerStreams::Round* round) { self.AddFrames(frames, now_ns, round); })
      .def("add_reads", &PeerStreams::AddReads)
      .def("add_snapshot_read", &PeerStreams::AddSnapshotRead)
      .def(
          "add_snapshot",
          [](const PeerStreams& self, const py::bytes& snapshot, PeerStreams::Round* round) {
            self.AddSnapshot(std::string_view(snapshot), round);
          })
      .def("add_lease", &PeerStreams::AddLease)
      .def("add_leave", &PeerStreams::AddLeave)
      .def("take", &TakePeerReplies, py::arg("round"), py::arg("sent_ns"), py::arg("replies"))
      .def("overflowed", &PeerStreams::Overflowed, py::arg("round"), py::arg("now_ns"))
      .def_property_readonly("knows_time", &PeerStreams::knows_time)
      .def("redis_ms", &PeerStreams::RedisMs)
      .def("start_at", &PeerStreams::StartAt)
      .def_property_readonly("others", &PeerStreams::others);
}

}  // namespace

void BindTestingRedis(py::module_& testing) {
  BindPeerStreams(testing);
  testing.def("parse_redis_url", [](std::string_view option, std::string_view text) {
    const RedisUrl url = ValueOrThrow(ParseRedisUrl(option, text));
    return py::make_tuple(url.tls, url.user, url.password, url.host, url.port, url.database, url.Shown());
  });
  testing.def("redis_commands", [](const std::vector<std::vector<std::string>>& commands) {
    return RedisBytes(JoinCommands(commands));
  });
  testing.def("read_redis_error", [](std::string_view text) {
    constexpr std::array<std::string_view, 4> kEffects = {"down", "unwritable", "read only", "one key"};
    const RedisError error = ReadRedisError(text);
    return py::make_tuple(kEffects[static_cast<size_t>(error.effect)], NameOf(error.type), error.message);
  });
  testing.def("first_redis_error", [](const py::bytes& reply) {
    RespReader reader(1 << 20);
    std::vector<RedisReply> replies;
    ThrowIfError(reader.Feed(std::string_view(reply), &replies));
    return std::string(replies.at(0).value().FirstError());
  });
  py::class_<RespReader>(testing, "RespReader")
      .def(py::init<size_t>(), py::arg("max_reply_bytes") = 1 << 20)
      .def("feed", &FeedReader)
      .def_property_readonly("reply_bytes", &RespReader::reply_bytes)
      .def_property_readonly_static(
          "max_line_bytes", [](const py::object&) { return RespReader::kMaxLineBytes; })
      .def_property_readonly_static(
          "max_elements", [](const py::object&) { return RespReader::kMaxElements; })
      .def_property_readonly_static("max_depth", [](const py::object&) { return RespReader::kMaxDepth; });
  py::class_<RedisHealth>(testing, "RedisHealth")
      .def(
          py::init<uint32_t, int64_t>(), py::arg("failures") = 2,
          py::arg("longest_delay_ns") = RedisHealth::kLongestDelayNanos)
      .def_property_readonly("state", [](const RedisHealth& self) { return NameOfState(self.state()); })
      .def_property_readonly("may_be_used", &RedisHealth::may_be_used)
      .def_property_readonly("next_probe_ns", &RedisHealth::next_probe_ns)
      .def("opened", &RedisHealth::Opened)
      .def("worked", &RedisHealth::Worked)
      .def("failed", &RedisHealth::Failed)
      .def("begin_probe", &RedisHealth::BeginProbe)
      .def("end_probe", &RedisHealth::EndProbe);
  py::class_<RedisCall>(testing, "RedisCall").def("get", &RedisCall::Get, py::arg("patience") = 30.0);
  py::class_<RedisLinkHarness>(testing, "RedisLink")
      .def(
          py::init<const std::string&, size_t, bool, int64_t, int64_t, uint32_t, const std::string&>(),
          py::arg("url"), py::kw_only(), py::arg("connections") = 1, py::arg("probes") = true,
          py::arg("connect_timeout_ms") = 3'000, py::arg("command_timeout_ms") = 1'000,
          py::arg("failures") = 2, py::arg("ca_file") = "")
      .def(
          "send", &RedisLinkHarness::Send, py::arg("commands"), py::arg("replies"),
          py::arg("to_caller") = false)
      .def("stats", &RedisLinkHarness::Stats)
      .def("stop", &RedisLinkHarness::Stop);
  testing.def("redis_connections_of", [](uint32_t connections, size_t threads) {
    const SteadyClock clock;
    return RedisPool(RedisOptions{.connections = connections}, nullptr, clock).ConnectionsOf(threads);
  });
  // The URL of the worker that a name means in a fleet of `urls`, with these sources of this router's own.
  testing.def(
      "find_backend",
      [](std::string_view name, const std::vector<std::string>& sources,
         const std::vector<std::string>& urls) -> std::optional<std::string> {
        WorkerRegistry registry([](const FleetView&) { return std::shared_ptr<const FleetPlan>(); });
        for (const std::string& url : urls) ThrowIfError(registry.Add(url));
        std::vector<PrefixSource> parsed;
        for (const std::string& source : sources)
          parsed.push_back(ValueOrThrow(ParsePrefixSource("kv_prefix_source", source)));
        const std::shared_ptr<const FleetView> fleet = registry.snapshot().Load();
        const std::optional<WorkerId> worker = BackendNames(std::move(parsed)).Find(name, *fleet);
        if (!worker) return std::nullopt;
        for (const FleetView::Member& member : fleet->members()) {
          if (member.worker->id == *worker) return member.worker->url.url;
        }
        return std::nullopt;
      });
}

}  // namespace vllm_router
