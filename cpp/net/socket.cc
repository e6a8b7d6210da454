#include "net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <utility>

#include "net/ready_set.h"
#include "net/tls.h"

namespace vllm_router {
namespace {

// A vanished peer is detected within 30 + 3 * 10 s even when nothing is being sent.
void SetOptions(int descriptor) {
  const int on = 1, idle = 30, interval = 10, probes = 3;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(descriptor, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof interval);
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
}

IoResult FromCall(ssize_t returned) {
  if (returned > 0) return {.bytes = returned};
  if (returned == 0) return {.eof = true};
  return {.error = errno};
}

}  // namespace

bool IoResult::would_block() const { return error == EAGAIN || error == EWOULDBLOCK; }

// The set notifies once, so `unread` remembers it.
struct Socket::Impl final : ReadySet::Member {
  enum class Unread : uint8_t { kNone, kPerhaps, kSome };  // bytes, or the end, in the kernel's buffer

  Impl(EventLoop& loop, int descriptor) : loop(loop), descriptor(descriptor) { SetOptions(descriptor); }

  EventLoop& loop;
  const int descriptor;
  std::unique_ptr<TlsSession> tls;  // null: plain
  Unread unread = Unread::kNone;
  bool ended = false;  // by the peer, or broken: the end can be read after what it sent
  bool closed = false;
  bool interrupted = false;
  bool reset = false;    // close with RST instead of FIN
  int peeked_error = 0;  // the kernel reports an error once, and end of stream from then on
  std::coroutine_handle<> reader;
  HandshakeAwaiter* handshake = nullptr;  // whose waiter is the reader
  ReadAwaiter* read = nullptr;            // where to put the bytes; null: the reader only waits for readiness
  std::coroutine_handle<> writer;
  Callback watcher = nullptr;
  void* watcher_context = nullptr;
  Socket::Callback end_watcher = nullptr;
  void* end_watcher_context = nullptr;

  void OnReady(uint32_t events) override {
    constexpr uint32_t kEnds = EPOLLRDHUP | EPOLLHUP | EPOLLERR;
    if (closed) return;
    if (handshake != nullptr) {
      GoOnWithHandshake();
      return;
    }
    if (events & (EPOLLIN | kEnds)) {
      unread = tls == nullptr ? Unread::kSome : Unread::kPerhaps;
      if (events & kEnds) {
        ended = true;
        if (end_watcher != nullptr) std::exchange(end_watcher, nullptr)(end_watcher_context);
        if (closed) return;
      }
      TellReader();
    } else if (tls != nullptr && unread == Unread::kPerhaps) {
      TellReader();  // it had to write before it could read
    }
    if (writer && events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) std::exchange(writer, nullptr).resume();
  }

  // Returns whether the handshake is over.
  bool GoOnWithHandshake() {
    const IoResult result = tls->Handshake();
    if (result.would_block()) {
      if (tls->wants_write()) loop.ready_set().AwaitWritable(descriptor, this);
      return false;
    }
    unread = Unread::kPerhaps;  // bytes behind the handshake have been read already
    std::exchange(handshake, nullptr)->ok = result.ok();
    if (reader) std::exchange(reader, nullptr).resume();
    return true;
  }

  void TellReader() {
    if (tls != nullptr && read == nullptr && (reader || watcher != nullptr) && !HasUnread()) return;
    if (read != nullptr) {
      const IoResult result = Receive(read->room);
      if (result.would_block()) return;
      std::exchange(read, nullptr)->result = result;
    }
    if (reader) {
      std::exchange(reader, nullptr).resume();
    } else if (watcher != nullptr) {
      std::exchange(watcher, nullptr)(watcher_context);
    }
  }

  // What arrives may be TLS control data and no plaintext.
  IoResult ReceiveTls(std::span<char> room) {
    const IoResult result = tls->Read(room);
    if (result.would_block()) {
      Drained();
    } else {
      unread = result.ok() && tls->drained() && !ended ? Unread::kNone : Unread::kPerhaps;
    }
    return result;
  }

  void Drained() {
    // If TLS has to write first, a later read must continue that.
    unread = tls->wants_write() ? Unread::kPerhaps : Unread::kNone;
    if (tls->wants_write()) loop.ready_set().AwaitWritable(descriptor, this);
  }

  IoResult Receive(std::span<char> room) {
    if (tls != nullptr) return ReceiveTls(room);
    if (peeked_error != 0) return {.error = peeked_error};
    const IoResult result = FromCall(::recv(descriptor, room.data(), room.size(), MSG_DONTWAIT));
    if (result.ok()) {
      // A read that did not fill its buffer has taken everything; the set reports later bytes again.
      const bool all = static_cast<size_t>(result.bytes) < room.size() && !ended;
      unread = all ? Unread::kNone : Unread::kPerhaps;
    } else if (result.would_block()) {
      unread = Unread::kNone;
    }
    return result;
  }

  bool HasUnread() {
    if (tls != nullptr) {
      if (unread != Unread::kPerhaps) return unread == Unread::kSome;
      if (tls->HasUnread()) return true;
      Drained();
      return false;
    }
    if (unread == Unread::kPerhaps) {
      char byte;
      const IoResult peeked = FromCall(::recv(descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT));
      unread = peeked.would_block() ? Unread::kNone : Unread::kSome;
      if (!peeked.would_block()) peeked_error = peeked.error;
    }
    return unread == Unread::kSome;
  }
};

Socket::Socket(EventLoop& loop, int descriptor) : impl_(std::make_shared<Impl>(loop, descriptor)) {
  if (!loop.ready_set().Add(descriptor, impl_.get())) Close();
}

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Close();
    impl_ = std::move(other.impl_);
  }
  return *this;
}

bool Socket::is_open() const { return impl_ != nullptr && !impl_->closed; }

void Socket::Close() {
  if (!is_open()) return;
  Impl& impl = *impl_;
  impl.closed = true;
  impl.watcher = nullptr;
  if (impl.tls != nullptr && !impl.reset) impl.tls->Shutdown();
  impl.handshake = nullptr;
  impl.end_watcher = nullptr;
  if (impl.read != nullptr) std::exchange(impl.read, nullptr)->result = {.error = ECANCELED};
  if (impl.reader) impl.loop.Resume(std::exchange(impl.reader, nullptr));
  if (impl.writer) impl.loop.Resume(std::exchange(impl.writer, nullptr));
  impl.loop.ready_set().Remove(impl.descriptor, impl_);
  ::close(impl.descriptor);
}

void Socket::Abort() {
  if (!is_open()) return;
  const linger reset{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(impl_->descriptor, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  impl_->reset = true;
  Close();
}

void Socket::ShutdownWrite() {
  if (!is_open()) return;
  if (impl_->tls != nullptr) impl_->tls->Shutdown();
  ::shutdown(impl_->descriptor, SHUT_WR);
}

void Socket::StartTls(std::shared_ptr<const TlsContext> context, const std::string& host, uint16_t port) {
  if (!is_open()) return;
  impl_->tls = std::make_unique<TlsSession>(std::move(context), impl_->descriptor, host, port);
}

bool Socket::is_tls() const { return impl_ != nullptr && impl_->tls != nullptr; }

const std::string& Socket::tls_error() const {
  static const std::string none;
  return is_tls() ? impl_->tls->why() : none;
}

bool Socket::HandshakeAwaiter::await_ready() {
  if (!socket->is_open()) return true;
  Impl& impl = *socket->impl_;
  impl.handshake = this;
  return impl.GoOnWithHandshake();
}

void Socket::HandshakeAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  socket->impl_->reader = waiter;
}

IoResult Socket::TryRead(std::span<char> room) {
  if (!is_open()) return {.error = ECANCELED};
  return impl_->Receive(room);
}

IoResult Socket::TryWrite(std::span<const iovec> pieces) {
  if (!is_open()) return {.error = ECANCELED};
  if (impl_->tls != nullptr) return impl_->tls->Write(pieces);
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = std::min<size_t>(pieces.size(), IOV_MAX);  // more are an error; the rest is for later
  const ssize_t sent = ::sendmsg(impl_->descriptor, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return {.error = errno};
  return {.bytes = sent};
}

bool Socket::HasUnread() const {
  if (!is_open()) return false;
  if (impl_->tls != nullptr) return impl_->tls->done() && impl_->tls->HasText();
  char byte;
  return ::recv(impl_->descriptor, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void Socket::WatchReadable(Callback callback, void* context) {
  if (!is_open()) return;
  impl_->watcher = callback;
  impl_->watcher_context = context;
  if (callback == nullptr || !impl_->HasUnread()) return;
  impl_->loop.Post([impl = impl_] {  // not from inside this call, where the caller does not expect it
    if (impl->watcher != nullptr && impl->HasUnread())
      std::exchange(impl->watcher, nullptr)(impl->watcher_context);
  });
}

void Socket::WatchEnd(Callback callback, void* context) {
  if (!is_open()) return;
  impl_->end_watcher = callback;
  impl_->end_watcher_context = context;
  if (callback == nullptr || !impl_->ended) return;
  impl_->loop.Post([impl = impl_] {
    if (impl->end_watcher != nullptr) std::exchange(impl->end_watcher, nullptr)(impl->end_watcher_context);
  });
}

bool Socket::IsBroken() const {
  if (!is_open()) return true;
  pollfd state{.fd = impl_->descriptor, .events = 0, .revents = 0};
  return ::poll(&state, 1, 0) < 0 || (state.revents & (POLLERR | POLLHUP)) != 0;
}

bool Socket::ReadableAwaiter::await_ready() { return !socket->is_open() || socket->impl_->HasUnread(); }

void Socket::ReadableAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  socket->impl_->watcher = nullptr;
  socket->impl_->reader = waiter;
}

bool Socket::ReadableAwaiter::await_resume() const {
  return socket->is_open() && !std::exchange(socket->impl_->interrupted, false);
}

void Socket::InterruptRead() {
  if (!is_open() || !impl_->reader) return;
  impl_->interrupted = true;
  impl_->loop.Resume(std::exchange(impl_->reader, nullptr));
}

bool Socket::WritableAwaiter::await_ready() const { return !socket->is_open(); }

void Socket::WritableAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  Impl& impl = *socket->impl_;
  impl.writer = waiter;
  impl.loop.ready_set().AwaitWritable(impl.descriptor, &impl);
}

bool Socket::WritableAwaiter::await_resume() const { return socket->is_open(); }

bool Socket::ReadAwaiter::await_ready() {
  if (socket->is_open() && socket->impl_->unread == Impl::Unread::kNone) return false;
  result = socket->TryRead(room);
  return !result.would_block();
}

void Socket::ReadAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  socket->impl_->reader = waiter;
  socket->impl_->read = this;
}

std::optional<Address> ParseAddress(std::string_view text) {
  const std::string copy(text);
  Address address;
  if (::inet_pton(AF_INET, copy.c_str(), address.bytes) == 1) return address;
  address.v6 = true;
  if (::inet_pton(AF_INET6, copy.c_str(), address.bytes) == 1) return address;
  return std::nullopt;
}

std::string FormatAddress(const Address& address) {
  char text[INET6_ADDRSTRLEN] = "";
  ::inet_ntop(address.v6 ? AF_INET6 : AF_INET, address.bytes, text, sizeof text);
  return text;
}

Connector::Connector(EventLoop& loop, std::shared_ptr<const TlsContext> tls, std::string host)
    : loop_(loop), tls_(std::move(tls)), host_(std::move(host)) {}

Connector::~Connector() = default;

void Connector::Awaiter::await_suspend(std::coroutine_handle<> waiter) {
  sockaddr_storage name{};
  socklen_t size;
  if (address.v6) {
    auto& v6 = reinterpret_cast<sockaddr_in6&>(name);
    v6.sin6_family = AF_INET6;
    v6.sin6_port = htons(port);
    std::memcpy(&v6.sin6_addr, address.bytes, 16);
    size = sizeof v6;
  } else {
    auto& v4 = reinterpret_cast<sockaddr_in&>(name);
    v4.sin_family = AF_INET;
    v4.sin_port = htons(port);
    std::memcpy(&v4.sin_addr, address.bytes, 4);
    size = sizeof v4;
  }
  connector->error_ = 0;
  connector->socket_ = Socket();
  const int descriptor = ::socket(name.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool begun =
      descriptor >= 0 &&
      (::connect(descriptor, reinterpret_cast<sockaddr*>(&name), size) == 0 || errno == EINPROGRESS);
  if (!begun) {
    connector->error_ = errno;  // usually out of descriptors
    if (descriptor >= 0) ::close(descriptor);
    connector->loop_.Resume(waiter);
    return;
  }
  connector->socket_ = Socket(connector->loop_, descriptor);
  if (!connector->socket_.is_open()) {
    connector->loop_.Resume(waiter);
    return;
  }
  Socket::WritableAwaiter{&connector->socket_}.await_suspend(waiter);
}

int Connector::Awaiter::await_resume() const {
  if (connector->error_ != 0) return connector->error_;
  if (!connector->socket_.is_open()) return ECANCELED;
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(connector->socket_.impl_->descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) connector->socket_.Close();
  return error;
}

Task<int> Connector::Connect(Address address, uint16_t port) {
  Awaiter connecting{this, address, port};
  const int error = co_await connecting;
  if (error != 0 || tls_ == nullptr) co_return error;
  socket_.StartTls(tls_, host_, port);
  const bool agreed = co_await socket_.Handshake();
  if (agreed) co_return 0;
  if (!socket_.is_open()) co_return ECANCELED;
  tls_error_ = socket_.tls_error();
  socket_.Close();
  co_return EPROTO;
}

Task<int> Connector::ConnectToAny(std::vector<Address> addresses, uint16_t port) {
  int error = ECANCELED;
  for (const Address& address : addresses) {
    if (cancelled_) co_return ECANCELED;
    error = co_await Connect(address, port);
    if (error == 0) break;
  }
  co_return error;
}

void Connector::Cancel() {
  cancelled_ = true;
  socket_.Close();
}

Socket Connector::TakeSocket() { return std::move(socket_); }

}  // namespace vllm_router
