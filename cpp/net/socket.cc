#include "net/socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/basic_stream_socket.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

namespace vllm_router {
namespace asio = boost::asio;
using boost::system::error_code;
using AsioSocket = asio::basic_stream_socket<asio::ip::tcp, asio::io_context::executor_type>;

namespace {

// A peer that has vanished is noticed within 30 + 3 * 10 s even when nothing is being sent.
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

struct Socket::Impl {
  explicit Impl(asio::io_context& context) : socket(context) {}

  AsioSocket socket;
  bool read_armed = false;
  bool readable = false;  // the wait ended while nobody wanted to know
  bool closed = false;
  bool interrupted = false;
  std::coroutine_handle<> reader;
  std::coroutine_handle<> writer;
  Callback watcher = nullptr;
  void* watcher_context = nullptr;

  static void ArmRead(const std::shared_ptr<Impl>& self) {
    if (self->read_armed || self->readable || self->closed) return;
    self->read_armed = true;
    self->socket.async_wait(AsioSocket::wait_read, [self](const error_code&) {
      self->read_armed = false;
      if (self->reader) {
        std::exchange(self->reader, nullptr).resume();
      } else if (self->closed) {
        return;
      } else if (self->watcher != nullptr) {
        std::exchange(self->watcher, nullptr)(self->watcher_context);
      } else {
        self->readable = true;
      }
    });
  }
};

Socket::Socket(EventLoop& loop, int descriptor) : impl_(std::make_shared<Impl>(loop.context())) {
  SetOptions(descriptor);
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size);
  impl_->socket.assign(name.ss_family == AF_INET6 ? asio::ip::tcp::v6() : asio::ip::tcp::v4(), descriptor);
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
  impl_->closed = true;
  impl_->watcher = nullptr;
  error_code ignored;
  impl_->socket.close(ignored);
}

void Socket::Abort() {
  if (!is_open()) return;
  const linger reset{.l_onoff = 1, .l_linger = 0};
  ::setsockopt(impl_->socket.native_handle(), SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  Close();
}

void Socket::ShutdownWrite() {
  if (is_open()) ::shutdown(impl_->socket.native_handle(), SHUT_WR);
}

IoResult Socket::TryRead(std::span<char> room) {
  if (!is_open()) return {.error = ECANCELED};
  return FromCall(::recv(impl_->socket.native_handle(), room.data(), room.size(), MSG_DONTWAIT));
}

IoResult Socket::TryWrite(std::span<const iovec> pieces) {
  if (!is_open()) return {.error = ECANCELED};
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces.data());
  message.msg_iovlen = pieces.size();
  const ssize_t sent = ::sendmsg(impl_->socket.native_handle(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent < 0) return {.error = errno};
  return {.bytes = sent};
}

bool Socket::HasUnread() const {
  if (!is_open()) return false;
  char byte;
  return ::recv(impl_->socket.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
}

void Socket::ArmReadable() {
  if (is_open()) Impl::ArmRead(impl_);
}

void Socket::WatchReadable(Callback callback, void* context) {
  if (!is_open()) return;
  impl_->watcher = callback;
  impl_->watcher_context = context;
  if (callback == nullptr) return;
  // What an earlier wait found may have been read since; a new wait finds it again if not.
  impl_->readable = false;
  Impl::ArmRead(impl_);
}

bool Socket::ReadableAwaiter::await_ready() {
  if (!socket->is_open()) return true;
  return std::exchange(socket->impl_->readable, false);
}

void Socket::ReadableAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  socket->impl_->watcher = nullptr;
  socket->impl_->reader = waiter;
  Impl::ArmRead(socket->impl_);
}

bool Socket::ReadableAwaiter::await_resume() const {
  return socket->is_open() && !std::exchange(socket->impl_->interrupted, false);
}

void Socket::InterruptRead() {
  if (!is_open() || !impl_->reader) return;
  impl_->interrupted = true;
  asio::post(
      impl_->socket.get_executor(), [waiter = std::exchange(impl_->reader, nullptr)] { waiter.resume(); });
}

bool Socket::WritableAwaiter::await_ready() const { return !socket->is_open(); }

void Socket::WritableAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  Impl& impl = *socket->impl_;
  impl.writer = waiter;
  impl.socket.async_wait(AsioSocket::wait_write, [self = socket->impl_](const error_code&) {
    std::exchange(self->writer, nullptr).resume();
  });
}

bool Socket::WritableAwaiter::await_resume() const { return socket->is_open(); }

void Socket::ReadAwaiter::await_suspend(std::coroutine_handle<> waiter) {
  if (!socket->is_open()) {
    result.error = ECANCELED;
    waiter.resume();
    return;
  }
  Impl& impl = *socket->impl_;
  impl.reader = waiter;
  impl.socket.async_read_some(
      asio::buffer(room.data(), room.size()),
      [this, self = socket->impl_](const error_code& error, size_t bytes) {
        if (!error) {
          result.bytes = static_cast<int64_t>(bytes);
        } else if (error == asio::error::eof) {
          result.eof = true;
        } else {
          result.error = self->closed ? ECANCELED : error.value();
        }
        std::exchange(self->reader, nullptr).resume();
      });
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

Connector::Connector(EventLoop& loop) : loop_(loop) {}

Connector::~Connector() = default;

void Connector::Awaiter::await_suspend(std::coroutine_handle<> waiter) {
  asio::ip::tcp::endpoint endpoint;
  if (address.v6) {
    asio::ip::address_v6::bytes_type bytes;
    std::memcpy(bytes.data(), address.bytes, bytes.size());
    endpoint = {asio::ip::address_v6(bytes), port};
  } else {
    asio::ip::address_v4::bytes_type bytes;
    std::memcpy(bytes.data(), address.bytes, bytes.size());
    endpoint = {asio::ip::address_v4(bytes), port};
  }
  auto impl = std::make_shared<Socket::Impl>(connector->loop_.context());
  connector->error_ = 0;
  connector->socket_ = Socket();
  connector->socket_.impl_ = impl;
  error_code opened;
  impl->socket.open(endpoint.protocol(), opened);
  if (opened) {  // out of descriptors, most likely
    connector->error_ = opened.value();
    connector->loop_.Resume(waiter);
    return;
  }
  SetOptions(impl->socket.native_handle());
  impl->socket.async_connect(endpoint, [connector = connector, impl, waiter](const error_code& error) {
    connector->error_ = impl->closed ? ECANCELED : error.value();
    waiter.resume();
  });
}

void Connector::Cancel() { socket_.Close(); }

Socket Connector::TakeSocket() { return std::move(socket_); }

}  // namespace vllm_router
