#include "net/zmq_socket.h"

#include <absl/container/inlined_vector.h>
#include <absl/strings/str_cat.h>
#include <zmq.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <utility>

namespace vllm_router {

struct ZmqContext::Impl {
  explicit Impl(int max_sockets) : context(zmq_ctx_new()), max_sockets(max_sockets) {
    zmq_ctx_set(context, ZMQ_IO_THREADS, 1);
    zmq_ctx_set(context, ZMQ_MAX_SOCKETS, max_sockets);
  }
  ~Impl() {
    while (zmq_ctx_term(context) != 0 && zmq_errno() == EINTR) {
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void* const context;
  const int max_sockets;
};

namespace {

int TypeOf(ZmqSocketType type) {
  switch (type) {
    case ZmqSocketType::kSub:
      return ZMQ_SUB;
    case ZmqSocketType::kPub:
      return ZMQ_PUB;
    case ZmqSocketType::kDealer:
      return ZMQ_DEALER;
    case ZmqSocketType::kRouter:
      return ZMQ_ROUTER;
    case ZmqSocketType::kPair:
      return ZMQ_PAIR;
  }
  return -1;
}

// Sets options until one fails, and remembers its name.
class OptionSetter {
 public:
  explicit OptionSetter(void* socket) : socket_(socket) {}

  template <typename T>
  void Set(int option, const char* name, T value) {
    if (zmq_setsockopt(socket_, option, &value, sizeof(value)) != 0) Fail(name, absl::StrCat(value));
  }
  void SetBytes(int option, const char* name, std::string_view value) {
    if (zmq_setsockopt(socket_, option, value.data(), value.size()) != 0) Fail(name, std::string(value));
  }
  // 0 keeps what the system has set.
  void SetUnlessZero(int option, const char* name, int value) {
    if (value != 0) Set(option, name, value);
  }
  const Status& status() const { return status_; }

 private:
  void Fail(const char* name, const std::string& value) {
    status_.Update(absl::InvalidArgumentError(
        absl::StrCat("ZeroMQ option ", name, " is ", value, ": ", zmq_strerror(zmq_errno()))));
  }

  void* const socket_;
  Status status_;
};

Status EndpointError(const char* what, const std::string& endpoint) {
  const int error = zmq_errno();
  const std::string sentence = absl::StrCat("cannot ", what, " ", endpoint, ": ", zmq_strerror(error));
  switch (error) {
    case EINVAL:
    case EPROTONOSUPPORT:
    case ENOCOMPATPROTO:
      return absl::InvalidArgumentError(
          absl::StrCat(sentence, "; a ZeroMQ endpoint is written tcp://HOST:PORT or ipc://PATH"));
    case EMTHREAD:
      return absl::ResourceExhaustedError(sentence);
    default:
      return absl::FailedPreconditionError(sentence);
  }
}

// One frame that libzmq owns.
class Frame {
 public:
  Frame() { zmq_msg_init(&message_); }
  ~Frame() { zmq_msg_close(&message_); }
  Frame(const Frame&) = delete;
  Frame& operator=(const Frame&) = delete;

  // 0, or errno.
  int Receive(void* socket) {
    while (zmq_msg_recv(&message_, socket, ZMQ_DONTWAIT) < 0) {
      if (zmq_errno() != EINTR) return zmq_errno();
    }
    return 0;
  }
  std::string_view bytes() {
    return {static_cast<const char*>(zmq_msg_data(&message_)), zmq_msg_size(&message_)};
  }
  bool more() { return zmq_msg_more(&message_) != 0; }
  int connection() { return zmq_msg_get(&message_, ZMQ_SRCFD); }
  std::string_view peer_address() {
    const char* const address = zmq_msg_gets(&message_, "Peer-Address");
    return address != nullptr ? address : std::string_view();
  }

 private:
  zmq_msg_t message_;
};

void StopMonitor(const std::shared_ptr<void*>& monitored) {
  if (monitored == nullptr || *monitored == nullptr) return;
  zmq_socket_monitor(std::exchange(*monitored, nullptr), nullptr, 0);
}

}  // namespace

ZmqContext::ZmqContext(int max_sockets) : impl_(std::make_shared<Impl>(max_sockets)) {}

ZmqSocket::ZmqSocket(std::shared_ptr<ZmqContext::Impl> context, void* socket)
    : context_(std::move(context)), socket_(socket) {}

ZmqSocket::ZmqSocket(ZmqSocket&& other) noexcept
    : context_(std::move(other.context_)),
      socket_(std::exchange(other.socket_, nullptr)),
      monitored_(std::move(other.monitored_)) {}

ZmqSocket& ZmqSocket::operator=(ZmqSocket&& other) noexcept {
  if (this == &other) return *this;
  Close();
  context_ = std::move(other.context_);
  socket_ = std::exchange(other.socket_, nullptr);
  monitored_ = std::move(other.monitored_);
  return *this;
}

ZmqSocket::~ZmqSocket() { Close(); }

// Before the context, which waits for its sockets.
void ZmqSocket::Close() {
  StopMonitor(monitored_);
  if (socket_ != nullptr) zmq_close(std::exchange(socket_, nullptr));
}

StatusOr<ZmqSocket> ZmqSocket::Open(
    const ZmqContext& context, ZmqSocketType type, const ZmqOptions& options) {
  void* const made = zmq_socket(context.impl_->context, TypeOf(type));
  if (made == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot open a ZeroMQ socket: ", zmq_strerror(zmq_errno()), "; the context allows ",
        context.impl_->max_sockets));
  }
  ZmqSocket socket(context.impl_, made);
  OptionSetter setter(made);
  setter.Set(ZMQ_LINGER, "LINGER", 0);
  setter.Set(ZMQ_RCVHWM, "RCVHWM", options.receive_limit);
  setter.Set(ZMQ_SNDHWM, "SNDHWM", options.send_limit);
  setter.Set(ZMQ_MAXMSGSIZE, "MAXMSGSIZE", options.max_frame_bytes);
  setter.Set(ZMQ_RECONNECT_IVL, "RECONNECT_IVL", options.reconnect_ms);
  setter.Set(ZMQ_RECONNECT_IVL_MAX, "RECONNECT_IVL_MAX", options.reconnect_max_ms);
  setter.Set(ZMQ_IPV6, "IPV6", options.ipv6 ? 1 : 0);
  setter.SetUnlessZero(ZMQ_HEARTBEAT_IVL, "HEARTBEAT_IVL", options.heartbeat_ms);
  setter.SetUnlessZero(ZMQ_HEARTBEAT_TIMEOUT, "HEARTBEAT_TIMEOUT", options.heartbeat_timeout_ms);
  if (options.keepalive_idle_s != 0 || options.keepalive_interval_s != 0 || options.keepalive_count != 0) {
    setter.Set(ZMQ_TCP_KEEPALIVE, "TCP_KEEPALIVE", 1);
  }
  setter.SetUnlessZero(ZMQ_TCP_KEEPALIVE_IDLE, "TCP_KEEPALIVE_IDLE", options.keepalive_idle_s);
  setter.SetUnlessZero(ZMQ_TCP_KEEPALIVE_INTVL, "TCP_KEEPALIVE_INTVL", options.keepalive_interval_s);
  setter.SetUnlessZero(ZMQ_TCP_KEEPALIVE_CNT, "TCP_KEEPALIVE_CNT", options.keepalive_count);
  for (const std::string& prefix : options.subscriptions) {
    setter.SetBytes(ZMQ_SUBSCRIBE, "SUBSCRIBE", prefix);
  }
  ROUTER_RETURN_IF_ERROR(setter.status());
  return socket;
}

Status ZmqSocket::Connect(const std::string& endpoint) {
  if (zmq_connect(socket_, endpoint.c_str()) == 0) return absl::OkStatus();
  return EndpointError("connect to", endpoint);
}

Status ZmqSocket::Bind(const std::string& endpoint) {
  if (zmq_bind(socket_, endpoint.c_str()) == 0) return absl::OkStatus();
  return EndpointError("listen on", endpoint);
}

std::string ZmqSocket::last_endpoint() const {
  char text[1024];
  size_t size = sizeof(text);
  if (zmq_getsockopt(socket_, ZMQ_LAST_ENDPOINT, text, &size) != 0 || size == 0) return {};
  return {text, size - 1};  // without its 0
}

bool ZmqSocket::Send(std::span<const std::string_view> frames) {
  for (size_t i = 0; i < frames.size(); ++i) {
    const int flags = ZMQ_DONTWAIT | (i + 1 < frames.size() ? ZMQ_SNDMORE : 0);
    // Once libzmq has taken the first frame it takes the rest.
    while (zmq_send(socket_, frames[i].data(), frames[i].size(), flags) < 0) {
      if (zmq_errno() != EINTR) return false;
    }
  }
  return true;
}

ZmqReceive ZmqSocket::Receive(
    size_t max_frames, std::vector<std::string>* frames, int* connection, std::string* peer_address) {
  size_t count = 0;
  for (bool more = true; more; ++count) {
    Frame frame;
    if (const int error = frame.Receive(socket_); error != 0) {
      frames->clear();
      return error == EAGAIN ? ZmqReceive::kNone : ZmqReceive::kError;
    }
    more = frame.more();
    if (connection != nullptr) *connection = frame.connection();
    if (peer_address != nullptr) peer_address->assign(frame.peer_address());
    if (count >= max_frames) continue;
    if (count == frames->size()) frames->emplace_back();
    (*frames)[count].assign(frame.bytes());
  }
  if (count > max_frames) {
    frames->clear();
    return ZmqReceive::kTooManyFrames;
  }
  frames->resize(count);
  return ZmqReceive::kMessage;
}

StatusOr<ZmqMonitor> ZmqMonitor::Open(ZmqSocket& socket, bool with_accepted) {
  static std::atomic<uint64_t> opened{0};
  const std::string endpoint =
      absl::StrCat("inproc://monitor-", opened.fetch_add(1, std::memory_order_relaxed));
  StopMonitor(socket.monitored_);
  const int events_heard =
      ZMQ_EVENT_HANDSHAKE_SUCCEEDED | ZMQ_EVENT_DISCONNECTED | (with_accepted ? ZMQ_EVENT_ACCEPTED : 0);
  if (zmq_socket_monitor(socket.socket_, endpoint.c_str(), events_heard) != 0) {
    return EndpointError("monitor through", endpoint);
  }
  ZmqContext context(socket.context_);
  // No limit: at one, libzmq's I/O thread would wait for the reader.
  StatusOr<ZmqSocket> events = ZmqSocket::Open(context, ZmqSocketType::kPair, {.receive_limit = 0});
  if (events.ok()) {
    Status connected = events->Connect(endpoint);
    if (connected.ok()) {
      socket.monitored_ = std::make_shared<void*>(socket.socket_);
      return ZmqMonitor(*std::move(events), socket.monitored_);
    }
    events = std::move(connected);
  }
  zmq_socket_monitor(socket.socket_, nullptr, 0);
  return events.status();
}

ZmqMonitor& ZmqMonitor::operator=(ZmqMonitor&& other) noexcept {
  if (this == &other) return *this;
  StopMonitor(monitored_);
  events_ = std::move(other.events_);
  monitored_ = std::move(other.monitored_);
  frames_ = std::move(other.frames_);
  return *this;
}

ZmqMonitor::~ZmqMonitor() { StopMonitor(monitored_); }

bool ZmqMonitor::Next(ZmqEvent* event) {
  constexpr size_t kFrames = 2;  // number u16 and value u32 of the machine's order; endpoint
  while (events_.Receive(kFrames, &frames_) == ZmqReceive::kMessage) {
    uint16_t number;
    int32_t value;
    if (frames_.size() != kFrames || frames_[0].size() < sizeof number + sizeof value) continue;
    std::memcpy(&number, frames_[0].data(), sizeof number);
    std::memcpy(&value, frames_[0].data() + sizeof number, sizeof value);
    switch (number) {
      case ZMQ_EVENT_HANDSHAKE_SUCCEEDED:
        event->kind = ZmqEvent::Kind::kConnected;
        value = -1;  // unused
        break;
      case ZMQ_EVENT_DISCONNECTED:
        event->kind = ZmqEvent::Kind::kDisconnected;
        break;
      case ZMQ_EVENT_ACCEPTED:
        event->kind = ZmqEvent::Kind::kAccepted;
        break;
      default:
        continue;
    }
    event->endpoint = frames_[1];
    event->connection = value;
    return true;
  }
  return false;
}

int ZmqPoll(std::span<ZmqPollItem> items, int timeout_ms) {
  absl::InlinedVector<zmq_pollitem_t, 16> polled(items.size());
  for (size_t i = 0; i < items.size(); ++i) {
    const ZmqPollItem& item = items[i];
    polled[i].socket = item.socket != nullptr ? item.socket->socket_ : nullptr;
    polled[i].fd = item.descriptor;
    polled[i].events = static_cast<short>(ZMQ_POLLIN | (item.for_sending ? ZMQ_POLLOUT : 0));
  }
  const int ready = zmq_poll(polled.data(), static_cast<int>(polled.size()), timeout_ms);
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].readable = ready > 0 && (polled[i].revents & (ZMQ_POLLIN | ZMQ_POLLERR)) != 0;
    items[i].writable = ready > 0 && (polled[i].revents & ZMQ_POLLOUT) != 0;
  }
  return ready > 0 ? ready : 0;
}

}  // namespace vllm_router
