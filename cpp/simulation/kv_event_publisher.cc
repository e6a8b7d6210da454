#include "simulation/kv_event_publisher.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <absl/strings/str_cat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

#include "base/clock.h"
#include "base/msgpack_writer.h"
#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {

namespace {

constexpr int64_t kLongestWaitMs = 3'600'000;
constexpr std::string_view kTopic;
constexpr std::string_view kGarbagePayload = "\xc1 this is not MessagePack";
constexpr uint64_t kEndOfReplay = std::numeric_limits<uint64_t>::max();
constexpr int kSendLimit = 100'000;  // batches that wait for a subscriber, as in vLLM
constexpr size_t kReplaysAtOnce = 16;
constexpr size_t kReplayFrames = 3;  // of a request: the peer, an empty frame, the first number

std::string NumberFrame(uint64_t number) {
  std::string frame;
  for (int shift = 56; shift >= 0; shift -= 8) frame += static_cast<char>(number >> shift & 0xff);
  return frame;
}

template <typename T>
void PackNumbers(const std::vector<T>& numbers, MsgpackWriter* packer) {
  packer->Array(numbers.size());
  for (const T number : numbers) packer->Unsigned(number);
}

void PackStored(const LiveEngine::CacheEvent& event, MsgpackWriter* packer) {
  packer->Map(11);
  packer->Text("type");
  packer->Text("BlockStored");
  packer->Text("block_hashes");
  PackNumbers(event.blocks, packer);
  packer->Text("parent_block_hash");
  if (event.parent) {
    packer->Unsigned(*event.parent);
  } else {
    packer->Nil();
  }
  packer->Text("token_ids");
  PackNumbers(event.tokens, packer);
  packer->Text("block_size");
  packer->Unsigned(event.tokens.size() / event.blocks.size());
  packer->Text("lora_id");
  packer->Nil();
  packer->Text("medium");
  packer->Text("GPU");
  packer->Text("lora_name");
  packer->Nil();
  packer->Text("extra_keys");
  packer->Array(event.blocks.size());
  for (size_t i = 0; i < event.blocks.size(); ++i) packer->Nil();
  packer->Text("group_idx");
  packer->Unsigned(0);
  packer->Text("kv_cache_spec_kind");
  packer->Text("full_attention");
}

void PackRemoved(const LiveEngine::CacheEvent& event, MsgpackWriter* packer) {
  packer->Map(4);
  packer->Text("type");
  packer->Text("BlockRemoved");
  packer->Text("block_hashes");
  PackNumbers(event.blocks, packer);
  packer->Text("medium");
  packer->Text("GPU");
  packer->Text("group_idx");
  packer->Unsigned(0);
}

std::string PayloadOf(const LiveEngine::CacheStep& step, double seconds) {
  using Kind = LiveEngine::CacheEvent::Kind;
  MsgpackWriter packer;
  packer.Array(3);
  packer.Float(seconds);
  packer.Array(step.size());
  for (const LiveEngine::CacheEvent& event : step) {
    switch (event.kind) {
      case Kind::kStored:
        PackStored(event, &packer);
        break;
      case Kind::kRemoved:
        PackRemoved(event, &packer);
        break;
      case Kind::kCleared:
        packer.Map(1);
        packer.Text("type");
        packer.Text("AllBlocksCleared");
        break;
    }
  }
  packer.Unsigned(0);  // the data-parallel rank
  return packer.Take();
}

bool IsV6(const std::string& host) { return host.find(':') != std::string::npos; }

// libzmq listens on addresses and interfaces, not on names.
std::string EndpointOf(const std::string& host, uint64_t port) {
  const std::string address = host == "localhost" ? "127.0.0.1" : IsV6(host) ? "[" + host + "]" : host;
  return "tcp://" + address + ":" + (port == 0 ? "*" : std::to_string(port));
}

StatusOr<uint16_t> Listen(ZmqSocket* socket, const std::string& host, int port) {
  ROUTER_RETURN_IF_ERROR(socket->Bind(EndpointOf(host, static_cast<uint64_t>(port))));
  const std::string endpoint = socket->last_endpoint();
  return static_cast<uint16_t>(
      ParseDecimal(std::string_view(endpoint).substr(endpoint.rfind(':') + 1)).value_or(0));
}

}  // namespace

KvEventPublisher::KvEventPublisher(const KvEventOptions& options, LiveEngine& engine, const Clock& clock)
    : options_(options), engine_(engine), clock_(clock), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  control_.faults = left_ = options.faults;
}

StatusOr<std::unique_ptr<KvEventPublisher>> KvEventPublisher::Start(
    const KvEventOptions& options, LiveEngine& engine, const Clock& clock) {
  std::unique_ptr<KvEventPublisher> made(new KvEventPublisher(options, engine, clock));
  ROUTER_RETURN_IF_ERROR(made->Open());
  engine.KeepCacheSteps();
  made->thread_ = std::thread([publisher = made.get()] { publisher->Run(); });
  return made;
}

Status KvEventPublisher::Open() {
  if (!wake_.is_open()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("cannot open an eventfd for KV events: ", std::strerror(errno)));
  }
  const auto open = [this](ZmqSocketType type, int send_limit, int port) -> StatusOr<uint16_t> {
    StatusOr<ZmqSocket> socket =
        ZmqSocket::Open(*context_, type, {.send_limit = send_limit, .ipv6 = IsV6(options_.host)});
    if (!socket.ok()) return socket.status();
    sockets_.push_back(*std::move(socket));
    return Listen(&sockets_.back(), options_.host, port);
  };
  const StatusOr<uint16_t> port = open(ZmqSocketType::kPub, kSendLimit, options_.port);
  if (!port.ok()) return port.status();
  port_ = *port;
  if (options_.replay_port < 0) return absl::OkStatus();
  // Room for a whole replay, although libzmq counts up to half of the limit as taken after it is not.
  const int replay_limit = 2 * static_cast<int>(options_.buffer_steps) + 1000;
  const StatusOr<uint16_t> replay_port = open(ZmqSocketType::kRouter, replay_limit, options_.replay_port);
  if (!replay_port.ok()) return replay_port.status();
  replay_port_ = *replay_port;
  return absl::OkStatus();
}

KvEventPublisher::~KvEventPublisher() { Stop(); }

std::string KvEventPublisher::SourcesJson() const {
  const std::string replay =
      replay_port_ == 0 ? "null" : "\"" + EndpointOf(options_.host, replay_port_) + "\"";
  return R"({"0":{"enable_kv_cache_events":true,"publisher":"zmq","endpoint":")" +
         EndpointOf(options_.host, port_) + R"(","replay_endpoint":)" + replay + R"(,"buffer_steps":)" +
         std::to_string(options_.buffer_steps) + R"(,"hwm":)" + std::to_string(kSendLimit) +
         R"(,"topic":""}})";
}

void KvEventPublisher::Wake() {
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(*wake_, &one, sizeof(one));  // full: it will wake
}

void KvEventPublisher::SetFaults(const KvEventFaults& faults) {
  {
    MutexLock lock(mutex_);
    control_.faults = faults;
    ++control_.faults_set;
  }
  Wake();
}

void KvEventPublisher::Restart() {
  MutexLock lock(mutex_);
  const uint64_t mine = ++control_.restarts;
  Wake();
  changed_.wait(lock.native(), [this, mine]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return restarted_ >= mine || ended_;
  });
}

void KvEventPublisher::Stop() {
  {
    MutexLock lock(mutex_);
    control_.stop = true;
  }
  Wake();
  MutexLock lock(joining_);
  if (thread_.joinable()) thread_.join();
}

void KvEventPublisher::Run() {
  for (;;) {
    // First, so that a replay has all that had happened when it was requested.
    ReceiveRequests();
    const int64_t next_event = engine_.TakeCacheSteps(&steps_);
    Control control;
    {
      // Read after the steps, so that what was set before a request holds for its events.
      MutexLock lock(mutex_);
      control = control_;
    }
    if (control.stop) break;
    Obey(control);
    if (!left_.stall) Publish();  // what a stall held up
    for (const LiveEngine::CacheStep& step : steps_) {
      Append(step);
      if (!left_.stall) Publish();  // before the buffer can lose it
    }
    if (!left_.stall) ServeReplays();
    WaitUntil(next_event);
  }
  sockets_.clear();
  context_.reset();  // waits until the ports are closed
  MutexLock lock(mutex_);
  ended_ = true;
  changed_.notify_all();
}

void KvEventPublisher::Obey(const Control& control) {
  if (std::exchange(faults_set_, control.faults_set) != control.faults_set) left_ = control.faults;
  if (std::exchange(restarts_, control.restarts) != control.restarts) StartAnew();
}

void KvEventPublisher::StartAnew() {
  engine_.ForgetCache();
  steps_.clear();
  batches_.clear();
  first_ = next_ = 0;
  MutexLock lock(mutex_);
  restarted_ = restarts_;
  changed_.notify_all();
}

void KvEventPublisher::Append(const LiveEngine::CacheStep& step) {
  batches_.push_back(PayloadOf(step, UnixSeconds()));
  if (batches_.size() <= options_.buffer_steps) return;
  batches_.pop_front();
  ++first_;
}

void KvEventPublisher::Publish() {
  for (next_ = std::max(next_, first_); next_ < first_ + batches_.size(); ++next_) {
    if (left_.drop_batches > 0) {
      --left_.drop_batches;
      continue;
    }
    const std::string number = NumberFrame(next_);
    std::string_view payload = batches_[next_ - first_];
    if (left_.garbage_batches > 0) {
      --left_.garbage_batches;
      payload = kGarbagePayload;
    }
    const std::string_view frames[] = {kTopic, number, payload};
    sockets_.front().Send(frames);
  }
}

void KvEventPublisher::ReceiveRequests() {
  if (replay_port_ == 0 || left_.stall) return;
  while (replays_.size() < kReplaysAtOnce) {
    const ZmqReceive received = sockets_.back().Receive(kReplayFrames, &request_);
    if (received == ZmqReceive::kNone || received == ZmqReceive::kError) return;
    if (request_.size() != kReplayFrames || request_[2].size() != sizeof(uint64_t)) continue;  // as vLLM
    uint64_t from = 0;
    for (const char byte : request_[2]) from = from << 8 | static_cast<uint8_t>(byte);
    replays_.push_back({request_[0], from});
  }
}

void KvEventPublisher::ServeReplays() {
  for (const auto& [peer, from] : replays_) {
    ZmqSocket& socket = sockets_.back();
    for (uint64_t at = std::max(from, first_); at < first_ + batches_.size(); ++at) {
      const std::string number = NumberFrame(at);
      const std::string_view frames[] = {peer, {}, kTopic, number, batches_[at - first_]};
      socket.Send(frames);
    }
    const std::string number = NumberFrame(kEndOfReplay);
    const std::string_view end[] = {peer, {}, {}, number, {}};
    socket.Send(end);
  }
  replays_.clear();
}

void KvEventPublisher::WaitUntil(int64_t time) {
  ZmqPollItem items[2] = {{.descriptor = *wake_}, {}};
  size_t count = 1;
  // While publishing is stalled a request for a replay, which is not read, would end every wait at once.
  if (replay_port_ != 0 && !left_.stall) items[count++].socket = &sockets_.back();
  const int64_t left = std::max<int64_t>(0, time - clock_.NowNanos());
  const int64_t ms = std::min(kLongestWaitMs, left / kNanosPerMs + (left % kNanosPerMs == 0 ? 0 : 1));
  ZmqPoll(std::span(items, count), static_cast<int>(ms));
  uint64_t wakes;
  [[maybe_unused]] const ssize_t read = ::read(*wake_, &wakes, sizeof(wakes));
}

}  // namespace vllm_router
