#include "net/listener.h"

#include <fcntl.h>
#include <linux/filter.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"

namespace vllm_router {
namespace asio = boost::asio;
namespace {

constexpr int kPauseMs = 100;                    // after running out of descriptors
constexpr int64_t kQuietNanos = 10'000'000'000;  // between two warnings about it

// Logs how many clients were rejected for want of a descriptor: at once, and again if the last warning
// is old enough. Thread-safe, since all listeners of the process run out together.
class ShedWarning {
 public:
  bool untold() const { return untold_.load(std::memory_order_relaxed) > 0; }
  void Count() { untold_.fetch_add(1, std::memory_order_relaxed); }

  // Logs what was counted, unless that must wait; returns for how long.
  int64_t Tell() {
    const int64_t now = clock_.NowNanos();
    int64_t quiet_until = quiet_until_.load(std::memory_order_relaxed);
    if (now < quiet_until) return quiet_until - now;
    // The thread that advances the time writes the warning.
    if (!quiet_until_.compare_exchange_strong(quiet_until, now + kQuietNanos)) return kQuietNanos;
    TellNow();
    return kQuietNanos;
  }

  void TellNow() {
    const uint64_t count = untold_.exchange(0);
    if (count == 0) return;
    Log(LogLevel::kWarning,
        Concat(
            "out of file descriptors: ", count, count == 1 ? " new connection was" : " new connections were",
            " closed; raise the limit (ulimit -n)"));
  }

 private:
  const SteadyClock clock_{};
  std::atomic<uint64_t> untold_{0};
  std::atomic<int64_t> quiet_until_{std::numeric_limits<int64_t>::min()};
};

ShedWarning shed_warning;

std::string Describe(const Listener::Where& where) {
  const bool v6 = where.host.find(':') != std::string::npos;
  return (v6 ? "[" + where.host + "]" : where.host) + ":" + std::to_string(where.port);
}

Status CannotListen(const Listener::Where& where, std::string_view why, std::string_view remedy) {
  std::string message = "cannot listen on " + Describe(where) + ": ";
  message.append(why).append("; ").append(remedy);
  return absl::FailedPreconditionError(message);
}

Endpoint PeerOf(const sockaddr_storage& name) {
  Address address;
  if (name.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      std::memcpy(address.bytes, v6.sin6_addr.s6_addr + 12, 4);
    } else {
      address.v6 = true;
      std::memcpy(address.bytes, &v6.sin6_addr, 16);
    }
    return {FormatAddress(address), ntohs(v6.sin6_port)};
  }
  const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
  std::memcpy(address.bytes, &v4.sin_addr, 4);
  return {FormatAddress(address), ntohs(v4.sin_port)};
}

// The address as /proc/net/tcp writes it: the words of the address as they are in memory, and the port.
std::string KernelName(const sockaddr_storage& name) {
  char text[64];
  if (name.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
    uint32_t words[4];
    std::memcpy(words, &v6.sin6_addr, sizeof words);
    std::snprintf(
        text, sizeof text, "%08X%08X%08X%08X:%04X", words[0], words[1], words[2], words[3],
        ntohs(v6.sin6_port));
  } else {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    std::snprintf(text, sizeof text, "%08X:%04X", v4.sin_addr.s_addr, ntohs(v4.sin_port));
  }
  return text;
}

// The inodes of the sockets of any process that listen there.
std::set<uint64_t> Listening(const sockaddr_storage& name) {
  const std::string wanted = KernelName(name);
  std::ifstream table(name.ss_family == AF_INET6 ? "/proc/net/tcp6" : "/proc/net/tcp");
  std::set<uint64_t> found;
  std::string line;
  std::getline(table, line);  // the column names
  std::string number, local, remote, state, skipped;
  uint64_t inode = 0;
  while (table >> number >> local >> remote >> state) {
    if (state != "0A") break;                                     // those that listen come first
    for (int column = 4; column < 9; ++column) table >> skipped;  // queues, timers, user
    table >> inode;
    std::getline(table, line);
    if (local == wanted) found.insert(inode);
  }
  return found;
}

void SetPort(sockaddr_storage* name, uint16_t port) {
  if (name->ss_family == AF_INET6) {
    reinterpret_cast<sockaddr_in6*>(name)->sin6_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in*>(name)->sin_port = htons(port);
  }
}

sockaddr_storage NameOf(int descriptor) {
  sockaddr_storage name{};
  socklen_t size = sizeof name;
  ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&name), &size);
  return name;
}

}  // namespace

struct Listener::Impl {
  static StatusOr<std::shared_ptr<Impl>> Open(
      EventLoop& loop, const Where& where, const sockaddr_storage& at, const OnAccept& on_accept);

  Impl(EventLoop& loop, int descriptor, OnAccept on_accept)
      : loop(loop), listening(loop.context(), descriptor), on_accept(std::move(on_accept)) {}
  ~Impl() {
    if (reserve >= 0) ::close(reserve);
  }

  // Returns false when accepting should pause.
  bool AcceptSome(int maximum) {
    for (int accepted = 0; accepted < maximum; ++accepted) {
      sockaddr_storage name{};
      socklen_t size = sizeof name;
      const int descriptor = ::accept4(
          listening.native_handle(), reinterpret_cast<sockaddr*>(&name), &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (descriptor >= 0) {
        on_accept(Socket(loop, descriptor), PeerOf(name));
      } else if (errno == EMFILE || errno == ENFILE) {
        ShedOne();
        return false;
      } else if (errno != EINTR && errno != ECONNABORTED) {
        return true;  // EAGAIN: all accepted
      }
    }
    return true;
  }

  // Without a spare descriptor, a waiting client cannot even be disconnected; the reserve is for that.
  void ShedOne() {
    if (reserve >= 0) ::close(reserve);
    const int descriptor = ::accept4(listening.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor >= 0) {
      ::close(descriptor);
      shed_warning.Count();
    }
    reserve = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (!warning.armed()) Warn(this);
  }

  static void Warn(void* context) {
    auto* self = static_cast<Impl*>(context);
    const int64_t wait_ms = shed_warning.Tell() / kNanosPerMs + 1;
    if (shed_warning.untold()) self->warning.Arm(self->loop.timers(), wait_ms, &Impl::Warn, self);
  }

  static void Wait(const std::shared_ptr<Impl>& self) {
    self->listening.async_wait(
        asio::posix::stream_descriptor::wait_read, [self](const boost::system::error_code& error) {
          if (error || self->stopped) return;
          if (self->AcceptSome(kMaxAcceptsPerWakeup)) {
            Wait(self);
          } else {
            self->pause.Arm(self->loop.timers(), kPauseMs, &Impl::Resume, self.get());
          }
        });
  }

  static void Resume(void* context) {
    auto* self = static_cast<Impl*>(context);
    Wait(self->weak_self.lock());
  }

  bool YieldPort(size_t ours);
  void Stop();

  EventLoop& loop;
  asio::posix::stream_descriptor listening;
  OnAccept on_accept;
  uint16_t port = 0;
  std::set<uint64_t> before;   // sockets that listened there already
  std::atomic<bool> steers{};  // it steers new connections and must undo that itself
  bool stopped = false;
  int reserve = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  Timer pause;
  Timer warning;  // armed while a warning is pending
  std::weak_ptr<Impl> weak_self;
};

StatusOr<std::unique_ptr<Listener>> Listener::Open(EventLoop& loop, const Where& given, OnAccept on_accept) {
  Where where = given;
  if (where.host.starts_with('[') && where.host.ends_with(']'))
    where.host = where.host.substr(1, where.host.size() - 2);
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(where.port);
  if (const int error = ::getaddrinfo(where.host.c_str(), service.c_str(), &hints, &found); error != 0) {
    return CannotListen(where, ::gai_strerror(error), "give a local address such as 127.0.0.1 or 0.0.0.0");
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> guard(found, &::freeaddrinfo);
  // A name may be listed with an address of a family that this machine does not have.
  std::vector<std::shared_ptr<Impl>> impls;
  Status failure;
  std::set<std::string> seen;
  for (addrinfo* address = found; address != nullptr; address = address->ai_next) {
    sockaddr_storage name{};
    std::memcpy(&name, address->ai_addr, address->ai_addrlen);
    if (!seen.insert(KernelName(name)).second) continue;
    SetPort(&name, where.port);
    StatusOr<std::shared_ptr<Impl>> impl = Impl::Open(loop, where, name, on_accept);
    if (impl.ok()) {
      where.port = (*impl)->port;
      impls.push_back(*std::move(impl));
    } else if (absl::IsUnavailable(impl.status())) {
      failure.Update(impl.status());
    } else {
      return impl.status();
    }
  }
  if (impls.empty()) return absl::FailedPreconditionError(failure.message());
  return std::unique_ptr<Listener>(new Listener(std::move(impls)));
}

// Unavailable: this machine has no such address.
StatusOr<std::shared_ptr<Listener::Impl>> Listener::Impl::Open(
    EventLoop& loop, const Where& where, const sockaddr_storage& at, const OnAccept& on_accept) {
  const int descriptor = ::socket(at.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (descriptor < 0 && errno == EAFNOSUPPORT) {
    return absl::UnavailableError(
        CannotListen(where, std::strerror(EAFNOSUPPORT), "choose an address of this machine").message());
  }
  if (descriptor < 0) return CannotListen(where, std::strerror(errno), "raise the limit of open files");
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  // Connections inherit it: the kernel takes so much that it cannot send yet, beside what is under way. Without it a client
  // that reads nothing costs 4 MB of copies and of kernel memory for each response of that length.
  const int most_unsent = 256 * 1024;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NOTSENT_LOWAT, &most_unsent, sizeof most_unsent);
  // A socket that sets SO_REUSEPORT before bind() joins any sharer of the port, another process of the
  // same user included. Two routers started on one port by mistake would each get half of the requests.
  // So the first socket binds alone and shares afterwards.
  const auto share = [&] { ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on); };
  if (where.share_port && where.join) share();
  std::set<uint64_t> before;
  const socklen_t size = at.ss_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  bool listening = ::bind(descriptor, reinterpret_cast<const sockaddr*>(&at), size) == 0;
  if (where.share_port && !where.join) share();
  if (listening && where.join) before = Listening(NameOf(descriptor));
  listening = listening && ::listen(descriptor, SOMAXCONN) == 0;
  if (!listening) {
    const int error = errno;
    ::close(descriptor);
    const Status failed = CannotListen(
        where, std::strerror(error),
        error == EADDRINUSE ? "stop the process that uses it, or choose another port"
        : error == EACCES   ? "choose a port above 1023, or run with the right to bind it"
                            : "choose an address of this machine");
    return error == EADDRNOTAVAIL ? absl::UnavailableError(failed.message()) : failed;
  }
  const sockaddr_storage name = NameOf(descriptor);

  auto impl = std::make_shared<Impl>(loop, descriptor, on_accept);
  impl->weak_self = impl;
  impl->before = std::move(before);
  impl->port = PeerOf(name).port;
  return impl;
}

Listener::~Listener() {
  for (const std::shared_ptr<Impl>& impl : impls_) {
    impl->stopped = true;
    boost::system::error_code ignored;
    impl->listening.close(ignored);
  }
}

uint16_t Listener::port() const { return impls_.front()->port; }

bool Listener::YieldPort(size_t ours) {
  bool yields = false;
  for (const std::shared_ptr<Impl>& impl : impls_) yields |= impl->YieldPort(ours);
  return yields;
}

// The sockets that share a port are numbered in the order they joined. A BPF program of one instruction
// returns the number that gets new connections. After this process has closed its sockets, a number at
// the end is out of range, and the kernel spreads connections as before. Number 0 stays valid, so Stop()
// removes the program.
bool Listener::Impl::YieldPort(size_t ours) {
  const int descriptor = listening.native_handle();
  const std::set<uint64_t> now = Listening(NameOf(descriptor));
  if (now.size() <= ours) return false;
  const auto came_later = static_cast<size_t>(
      std::count_if(now.begin(), now.end(), [this](uint64_t inode) { return !before.contains(inode); }));
  // A successor joined last. Without one, this process came to replace the others and is giving up.
  const size_t number = came_later > ours ? now.size() - 1 : 0;
  sock_filter last = BPF_STMT(BPF_RET | BPF_K, static_cast<uint32_t>(number));
  const sock_fprog program{.len = 1, .filter = &last};
  steers.store(number == 0);
  return ::setsockopt(descriptor, SOL_SOCKET, SO_ATTACH_REUSEPORT_CBPF, &program, sizeof program) == 0;
}

void Listener::Start() {
  for (const std::shared_ptr<Impl>& impl : impls_) Impl::Wait(impl);
}

void Listener::Stop() {
  for (const std::shared_ptr<Impl>& impl : impls_) impl->Stop();
}

void Listener::Impl::Stop() {
  if (stopped) return;
  stopped = true;
  pause.Disarm();
  if (steers.load()) {
    const int unused = 0;
    ::setsockopt(listening.native_handle(), SOL_SOCKET, SO_DETACH_REUSEPORT_BPF, &unused, sizeof unused);
  }
  AcceptSome(SOMAXCONN);
  warning.Disarm();
  shed_warning.TellNow();
  boost::system::error_code ignored;
  listening.close(ignored);
}

}  // namespace vllm_router
