#include "simulation/simulated_worker.h"

#include <algorithm>
#include <cstdio>
#include <span>
#include <thread>
#include <vector>

#include "base/text.h"
#include "net/listener.h"
#include "simulation/worker_connection.h"

namespace vllm_router {

namespace {

constexpr double kDayMs = 24 * 3600 * 1e3;  // a longer time is a typing error

constexpr uint64_t kDefaultCacheBlocks = 65536;

Status InRange(const char* name, double value, double least, double most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(
      std::string(name) + " is " + PlainNumber(value) + "; it must be from " + PlainNumber(least) + " to " +
      PlainNumber(most));
}

Status Check(const Faults& faults) {
  ROUTER_RETURN_IF_ERROR(InRange("latency_ms", faults.latency_ms, 0, kDayMs));
  if (faults.status_code != 0) ROUTER_RETURN_IF_ERROR(InRange("status_code", faults.status_code, 200, 599));
  ROUTER_RETURN_IF_ERROR(InRange("health_status", faults.health_status, 200, 599));
  return InRange("retry_after_s", faults.retry_after_s, 0, 1e9);
}

Status OneOf(const char* name, std::string_view value, std::span<const std::string_view> known) {
  if (std::find(known.begin(), known.end(), value) != known.end()) return absl::OkStatus();
  std::string words;
  for (const std::string_view word : known) words += (words.empty() ? "" : " or ") + Quoted(word);
  return absl::InvalidArgumentError(Concat(name, " is ", Quoted(value), "; it must be ", words));
}

Status CheckStage(const SimulatedWorkerOptions& options) {
  constexpr std::string_view kStages[] = {"", "prefill", "decode"};
  constexpr std::string_view kConnectors[] = {"nixl"};
  constexpr std::string_view kPolicies[] = {"fail", "recompute"};
  ROUTER_RETURN_IF_ERROR(OneOf("stage", options.stage, kStages));
  ROUTER_RETURN_IF_ERROR(OneOf("connector", options.connector, kConnectors));
  ROUTER_RETURN_IF_ERROR(OneOf("kv_load_failure_policy", options.kv_load_failure_policy, kPolicies));
  return InRange("kv_lease_s", options.kv_lease_s, 0.001, 1e6);
}

Status Check(const SimulatedWorkerOptions& options) {
  const BatchEngineOptions& engine = options.engine;
  ROUTER_RETURN_IF_ERROR(InRange("threads", options.threads, 1, 256));
  ROUTER_RETURN_IF_ERROR(InRange("keep_alive_s", options.keep_alive_s, 0, kDayMs));
  ROUTER_RETURN_IF_ERROR(CheckEngineCoefficients(engine.coefficients));
  ROUTER_RETURN_IF_ERROR(InRange("speed", engine.speed, 0.01, 1000));
  ROUTER_RETURN_IF_ERROR(InRange("max_running", engine.max_running, 1, 1 << 20));
  ROUTER_RETURN_IF_ERROR(InRange("step_tokens", engine.step_tokens, 1, 1 << 24));
  ROUTER_RETURN_IF_ERROR(InRange("block_tokens", engine.block_tokens, 1, 65536));
  ROUTER_RETURN_IF_ERROR(InRange("cache_blocks", static_cast<double>(engine.cache_blocks), 0, 1e9));
  ROUTER_RETURN_IF_ERROR(InRange("max_model_len", static_cast<double>(options.model.max_model_len), 1, 1e9));
  ROUTER_RETURN_IF_ERROR(InRange("kv_events_port", options.kv_events_port, -1, 65535));
  ROUTER_RETURN_IF_ERROR(InRange("kv_events_replay_port", options.kv_events_replay_port, -1, 65535));
  ROUTER_RETURN_IF_ERROR(
      InRange("kv_events_buffer_steps", static_cast<double>(options.kv_events_buffer_steps), 1, 1e6));
  if (options.kv_events_replay_port >= 0 && options.kv_events_port < 0) {
    return absl::InvalidArgumentError(
        "kv_events_replay_port is " + PlainNumber(options.kv_events_replay_port) +
        ", and there are no KV events to replay; set kv_events_port as well (0 is any free port)");
  }
  if (options.kv_events_polled && options.kv_events_port >= 0) {
    return absl::InvalidArgumentError(
        "kv_events_polled is set, and kv_events_port is " + PlainNumber(options.kv_events_port) +
        "; an engine either publishes its KV events or keeps them for polls: set one of both");
  }
  ROUTER_RETURN_IF_ERROR(CheckStage(options));
  ROUTER_RETURN_IF_ERROR(
      InRange("fixed_response_bytes", static_cast<double>(options.fixed_response_bytes), 0, 1e9));
  if (!options.tool_script.empty()) {
    ROUTER_RETURN_IF_ERROR(ToolScript::Parse(options.tool_script).status());
  }
  return Check(options.faults);
}

}  // namespace

BatchEngineOptions DefaultEngine() {
  return {
      .coefficients = EngineCoefficientsByName("quick").value(),
      .cache_blocks = kDefaultCacheBlocks,
      .min_computed_tokens = 1};
}

struct SimulatedWorker::Impl {
  // One loop with its listener and connections.
  struct Lane {
    Lane(WorkerState& state, size_t number) : thread(state, loop, state.counts(number)) {}
    EventLoop loop;
    WorkerThread thread;
    std::unique_ptr<Listener> listener;
    std::thread runner;
  };

  explicit Impl(const SimulatedWorkerOptions& options) : state(options) {}

  void OnEveryLoop(std::function<void(Lane&)> function) {
    for (const std::unique_ptr<Lane>& lane : lanes) {
      lane->loop.Post([function, lane = lane.get()] { function(*lane); });
    }
  }

  WorkerState state;
  std::vector<std::unique_ptr<Lane>> lanes;
  uint16_t port = 0;
  bool stopped = false;
};

StatusOr<std::unique_ptr<SimulatedWorker>> SimulatedWorker::Start(const SimulatedWorkerOptions& options) {
  ROUTER_RETURN_IF_ERROR(Check(options));
  auto impl = std::make_unique<Impl>(options);
  impl->port = options.port;
  for (int i = 0; i < options.threads; ++i) {
    auto lane = std::make_unique<Impl::Lane>(impl->state, static_cast<size_t>(i));
    // The first listener chooses the port, the others share it. A single listener does not share, and so
    // notices a port in use.
    StatusOr<std::unique_ptr<Listener>> listener = Listener::Open(
        lane->loop,
        {.host = options.host,
         .port = impl->port,
         .share_port = options.threads > 1,
         .join = !impl->lanes.empty()},
        [thread = &lane->thread](Socket socket, Endpoint) {
          WorkerConnection::Serve(*thread, std::move(socket));
        });
    if (!listener.ok()) return listener.status();
    lane->listener = *std::move(listener);
    impl->port = lane->listener->port();
    impl->lanes.push_back(std::move(lane));
  }
  Impl* shared = impl.get();
  ROUTER_RETURN_IF_ERROR(shared->state.StartKvEvents());
  shared->state.OnSooner(
      [shared] { shared->OnEveryLoop([](Impl::Lane& lane) { lane.thread.WakeWaiting(); }); });
  shared->state.OnCrash([shared] {
    if (KvEventPublisher* const events = shared->state.kv_events()) events->Stop();
    if (StageWorker* const stage = shared->state.stage()) stage->Stop();
    shared->OnEveryLoop([](Impl::Lane& lane) {
      lane.listener.reset();
      lane.thread.CloseAll(true);
    });
  });
  for (const std::unique_ptr<Impl::Lane>& lane : impl->lanes) {
    lane->thread.port = impl->port;
    lane->thread.fingerprint = "sim-" + std::to_string(impl->port);
    lane->runner = std::thread([lane = lane.get()] {
      lane->listener->Start();
      lane->loop.Run();
    });
  }
  return std::unique_ptr<SimulatedWorker>(new SimulatedWorker(std::move(impl)));
}

SimulatedWorker::SimulatedWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

SimulatedWorker::~SimulatedWorker() { Stop(); }

uint16_t SimulatedWorker::port() const { return impl_->port; }

void SimulatedWorker::Stop() {
  if (std::exchange(impl_->stopped, true)) return;
  if (StageWorker* const stage = impl_->state.stage()) stage->Stop();
  impl_->OnEveryLoop([](Impl::Lane& lane) {
    lane.listener.reset();
    lane.thread.stopping = true;
    lane.thread.CloseAll(false);
    if (lane.thread.open.empty()) lane.loop.Stop();
  });
  for (const std::unique_ptr<Impl::Lane>& lane : impl_->lanes) lane->runner.join();
  if (KvEventPublisher* const events = impl_->state.kv_events()) events->Stop();
}

Status SimulatedWorker::SetFaults(const Faults& faults) {
  ROUTER_RETURN_IF_ERROR(Check(faults));
  impl_->state.SetFaults(faults);
  return absl::OkStatus();
}

uint16_t SimulatedWorker::kv_events_port() const {
  const KvEventPublisher* const events = impl_->state.kv_events();
  return events == nullptr ? 0 : events->port();
}

uint16_t SimulatedWorker::kv_events_replay_port() const {
  const KvEventPublisher* const events = impl_->state.kv_events();
  return events == nullptr ? 0 : events->replay_port();
}

Status SimulatedWorker::RestartKvEvents() {
  if (KvEventPublisher* const events = impl_->state.kv_events()) {
    events->Restart();
  } else if (KvEventBuffer* const buffer = impl_->state.kv_event_buffer()) {
    buffer->Restart();
  } else {
    return absl::FailedPreconditionError(
        "the simulated worker publishes no KV events; start it with kv_events_port (0 is any free port) or "
        "kv_events_polled");
  }
  return absl::OkStatus();
}

StageWorker* SimulatedWorker::stage() { return impl_->state.stage(); }

bool SimulatedWorker::crashed() const { return impl_->state.crashed(); }

std::string SimulatedWorker::StatsJson() const { return impl_->state.StatsJson(); }

}  // namespace vllm_router
