// The clock and the network of one program, under the program's control. What the C library would do is defined here, and
// a program's own definitions come first, so the code under test is the product's, unchanged:
//
//   clock_gettime             the program's clock, which stands still between simulated_io::Advance()
//   socket, connect           one end of a socket pair; the other is the program's, which accepts or rejects
//   recv, getsockopt          the same, and a reset that the program has sent
//
// A socket pair delivers within the call, which loopback TCP does not promise. One thread. Include it in one file only.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <vector>

namespace vllm_router::simulated_io {

inline constexpr int kMostDescriptors = 4096;
inline constexpr int kSendBuffer = 4608;  // the kernel's minimum, so that writes are partial early
inline constexpr int64_t kStartNs = 1'000'000'000'000;

struct Descriptor {
  int peer = -1;
  int connect_error = 0;
  bool reset = false;  // by the peer, and not yet reported
};

struct Connecting {
  int descriptor;
  int peer;
  uint16_t port;
};

struct State {
  int64_t now_ns = kStartNs;
  uint64_t calls = 0;  // that moved bytes or opened something
  std::array<Descriptor, kMostDescriptors> descriptors;
  std::vector<Connecting> connecting;  // not yet taken by the program
};

inline State& Get() {
  static State state;
  return state;
}

inline void Advance(int64_t nanos) { Get().now_ns += nanos; }

// Both ends are non-blocking. The first is for the code under test.
inline std::array<int, 2> Pair() {
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) return {-1, -1};
  for (const int end : ends) ::setsockopt(end, SOL_SOCKET, SO_SNDBUF, &kSendBuffer, sizeof kSendBuffer);
  Get().descriptors.at(static_cast<size_t>(ends[0])) = {.peer = ends[1]};
  Get().descriptors.at(static_cast<size_t>(ends[1])) = {};
  return ends;
}

// The peer's next read is a reset, behind what has been sent.
inline void Reset(int descriptor) { Get().descriptors.at(static_cast<size_t>(descriptor)).reset = true; }
inline void RejectConnect(int descriptor) {
  Get().descriptors.at(static_cast<size_t>(descriptor)).connect_error = ECONNREFUSED;
}

// A socket is connected when it is writable, so until then it is full.
inline void Fill(int descriptor) {
  static const std::array<char, 2048> filler{};
  while (::send(descriptor, filler.data(), filler.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
  }
}
inline void Drain(int peer) {
  std::array<char, 4096> filler;
  while (::syscall(SYS_recvfrom, peer, filler.data(), filler.size(), MSG_DONTWAIT, nullptr, nullptr) > 0) {
  }
}

}  // namespace vllm_router::simulated_io

extern "C" {

// NOLINTBEGIN: the names are the C library's
int clock_gettime(clockid_t, timespec* time) noexcept {
  const int64_t now = vllm_router::simulated_io::Get().now_ns;
  time->tv_sec = static_cast<time_t>(now / 1'000'000'000);
  time->tv_nsec = static_cast<long>(now % 1'000'000'000);
  return 0;
}

// Without one, Asio looks at its timers in each turn of the loop.
int timerfd_create(int, int) noexcept {
  errno = ENOSYS;
  return -1;
}

int socket(int domain, int type, int protocol) noexcept {
  if (domain != AF_INET && domain != AF_INET6) {
    return static_cast<int>(::syscall(SYS_socket, domain, type, protocol));
  }
  ++vllm_router::simulated_io::Get().calls;
  return vllm_router::simulated_io::Pair()[0];
}

int connect(int descriptor, const sockaddr* name, socklen_t) {
  using namespace vllm_router::simulated_io;
  const uint16_t port = ntohs(reinterpret_cast<const sockaddr_in*>(name)->sin_port);
  Fill(descriptor);
  Get().connecting.push_back({descriptor, Get().descriptors.at(static_cast<size_t>(descriptor)).peer, port});
  errno = EINPROGRESS;
  return -1;
}

int getsockopt(int descriptor, int level, int name, void* value, socklen_t* size) noexcept {
  const int error =
      vllm_router::simulated_io::Get().descriptors.at(static_cast<size_t>(descriptor)).connect_error;
  if (level == SOL_SOCKET && name == SO_ERROR && error != 0) {
    *static_cast<int*>(value) = error;
    return 0;
  }
  return static_cast<int>(::syscall(SYS_getsockopt, descriptor, level, name, value, size));
}

ssize_t recv(int descriptor, void* buffer, size_t size, int flags) {
  using namespace vllm_router::simulated_io;
  const long received = ::syscall(SYS_recvfrom, descriptor, buffer, size, flags, nullptr, nullptr);
  if (received > 0) ++Get().calls;
  Descriptor& state = Get().descriptors.at(static_cast<size_t>(descriptor));
  if (received != 0 || !state.reset) return received;
  state.reset = false;
  errno = ECONNRESET;
  return -1;
}
// NOLINTEND

}  // extern "C"
