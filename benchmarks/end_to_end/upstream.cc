// A worker that costs next to nothing, so that what stands before it is what gets measured.
//
//   upstream --port 0            prints {"port": 40123}, then answers until SIGTERM
//
// One thread, one epoll. Every request is answered at once:
//   - as JSON of --response-bytes whose "id" is the hash of the request's body, so that a proxy which loses, adds
//     or changes a byte is found out;
//   - or, when the request has the field "X-Mock-Stream: EVENTS/INTERVAL_US/BYTES", as so many server-sent events,
//     one per interval (0: as fast as possible), each with the time it was sent behind an '@' (common.h).
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <queue>
#include <vector>

#include "common.h"
#include "hashing/hash.h"

namespace vllm_router::bench {
namespace {

constexpr std::string_view kIdDigits = "0123456789abcdef";

volatile std::sig_atomic_t stopped = 0;

struct Connection {
  int fd = -1;
  uint32_t life = 0;  // a timer that was set in an earlier life is not ours
  std::string in;     // the beginning of a request
  size_t wanted = 0;  // bytes of `in` that make a whole request, once its head is known
  std::string out;    // what the socket did not take
  bool close = false;

  uint64_t events_left = 0;
  uint64_t interval_ns = 0;
  uint64_t due_ns = 0;
  size_t event_bytes = 0;
};

struct Timer {
  uint64_t due_ns;
  Connection* connection;
  uint32_t life;
  bool operator<(const Timer& other) const { return due_ns > other.due_ns; }  // the earliest is on top
};

class Upstream {
 public:
  Upstream(uint16_t port, size_t response_bytes) : epoll_(epoll_create1(EPOLL_CLOEXEC)), scratch_(256 << 10) {
    const std::string open =
        R"({"id":"chatcmpl-)" + std::string(16, '0') +
        R"(","object":"chat.completion","created":1700000000,"model":"mock","choices":[{"index":0,)"
        R"("message":{"role":"assistant","content":")";
    const std::string end =
        R"("},"finish_reason":"stop"}],"usage":{"prompt_tokens":256,"completion_tokens":128,)"
        R"("total_tokens":384,"prompt_tokens_details":{"cached_tokens":0}}})";
    const size_t text =
        response_bytes > open.size() + end.size() ? response_bytes - open.size() - end.size() : 1;
    answer_ =
        "HTTP/1.1 200 OK\r\ndate: Thu, 20 Nov 2025 00:00:00 GMT\r\nserver: uvicorn\r\ncontent-length: " +
        std::to_string(open.size() + text + end.size()) + "\r\ncontent-type: application/json\r\n\r\n";
    id_at_ = answer_.size() + std::strlen(R"({"id":"chatcmpl-)");
    answer_ += open + std::string(text, 'y') + end;
    Listen(port);
  }

  void Run() {
    std::array<epoll_event, 512> events;
    while (!stopped) {
      const int count = Wait(events);
      for (int i = 0; i < count; ++i) {
        if (events[i].data.ptr == nullptr) {
          Accept();
        } else {
          OnEvent(*static_cast<Connection*>(events[i].data.ptr), events[i].events);
        }
      }
      const uint64_t now = NowNanos();
      while (!timers_.empty() && timers_.top().due_ns <= now) {
        const Timer timer = timers_.top();
        timers_.pop();
        if (timer.connection->life == timer.life) Tick(*timer.connection);
      }
    }
  }

 private:
  void Listen(uint16_t port) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
        listen(listener_, 16384) != 0) {
      Fail("upstream: cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno));
    }
    socklen_t size = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    Watch(EPOLL_CTL_ADD, listener_, EPOLLIN, nullptr);
    std::printf("{\"port\": %d}\n", ntohs(address.sin_port));
    std::fflush(stdout);
  }

  void Watch(int operation, int fd, uint32_t events, Connection* connection) {
    epoll_event event{};
    event.events = events;
    event.data.ptr = connection;
    epoll_ctl(epoll_, operation, fd, &event);
  }

  int Wait(std::array<epoll_event, 512>& events) {
    if (timers_.empty()) return epoll_wait(epoll_, events.data(), events.size(), -1);
    const uint64_t now = NowNanos();
    const uint64_t left = timers_.top().due_ns > now ? timers_.top().due_ns - now : 0;
    const timespec timeout{
        static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    return epoll_pwait2(epoll_, events.data(), events.size(), &timeout, nullptr);
  }

  void Accept() {
    for (;;) {
      const int fd = accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
      if (fd < 0) return;
      const int one = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
      if (resting_.empty()) {
        connections_.push_back(std::make_unique<Connection>());
        resting_.push_back(connections_.back().get());
      }
      Connection* connection = resting_.back();
      resting_.pop_back();
      connection->fd = fd;
      Watch(EPOLL_CTL_ADD, fd, EPOLLIN, connection);
    }
  }

  void Close(Connection& connection) {
    close(connection.fd);
    connection = Connection{.life = connection.life + 1};
    resting_.push_back(&connection);
  }

  void OnEvent(Connection& connection, uint32_t events) {
    if (connection.fd < 0) return;  // closed by an earlier event of this batch
    if ((events & EPOLLOUT) != 0 && !Flush(connection)) return;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    const ssize_t read = recv(connection.fd, scratch_.data(), scratch_.size(), 0);
    if (read < 0 && errno == EAGAIN) return;
    if (read <= 0) return Close(connection);
    const std::string_view bytes(scratch_.data(), static_cast<size_t>(read));
    // A request that arrives whole, as small ones do, is served from where it was read.
    if (connection.in.empty()) {
      const size_t used = Serve(connection, bytes);
      if (connection.fd >= 0) connection.in.assign(bytes.substr(used));
      return;
    }
    connection.in.append(bytes);
    if (connection.in.size() < connection.wanted) return;
    const size_t used = Serve(connection, connection.in);
    if (connection.fd >= 0) connection.in.erase(0, used);
  }

  // Answers the requests at the beginning of `bytes`; returns how many bytes they were.
  size_t Serve(Connection& connection, std::string_view bytes) {
    size_t used = 0;
    while (used < bytes.size() && connection.events_left == 0) {
      const std::optional<Head> head = FindHead(bytes.substr(used));
      if (!head) break;
      if (head->chunked) Fail("upstream: a chunked request, which no scenario sends");
      const size_t size = head->bytes + head->content_length.value_or(0);
      connection.wanted = size;
      if (bytes.size() - used < size) break;
      connection.wanted = 0;
      connection.close = head->close;
      const std::string_view stream = FieldOf(head->fields, "x-mock-stream");
      if (stream.empty()) {
        AnswerJson(connection, bytes.substr(used + head->bytes, size - head->bytes));
      } else {
        BeginStream(connection, stream);
      }
      if (connection.fd < 0) break;
      used += size;
    }
    return used;
  }

  void AnswerJson(Connection& connection, std::string_view body) {
    uint64_t hash = Xxh3(body);
    for (size_t i = 0; i < 16; ++i, hash >>= 4) answer_[id_at_ + i] = kIdDigits[hash & 15];
    Send(connection, answer_);
    if (connection.fd >= 0 && connection.close && connection.out.empty()) Close(connection);
  }

  void BeginStream(Connection& connection, std::string_view asked) {
    unsigned long long events = 0;
    unsigned long long interval_us = 0;
    unsigned long long bytes = 0;
    if (std::sscanf(std::string(asked).c_str(), "%llu/%llu/%llu", &events, &interval_us, &bytes) != 3 ||
        events == 0) {
      Fail("upstream: X-Mock-Stream must be EVENTS/INTERVAL_US/BYTES, not " + std::string(asked));
    }
    connection.events_left = events;
    connection.interval_ns = interval_us * 1000;
    connection.event_bytes = bytes;
    Send(
        connection,
        "HTTP/1.1 200 OK\r\ndate: Thu, 20 Nov 2025 00:00:00 GMT\r\nserver: uvicorn\r\n"
        "content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n");
    if (interval_us == 0) {
      while (connection.fd >= 0 && connection.events_left > 0) SendEvent(connection);
      return;
    }
    // Streams begin at any phase of the interval; golden-ratio steps spread any number of them evenly.
    phase_ += 0.618033988749895;
    phase_ -= static_cast<double>(static_cast<int>(phase_));
    connection.due_ns =
        NowNanos() + static_cast<uint64_t>(phase_ * static_cast<double>(connection.interval_ns));
    timers_.push({connection.due_ns, &connection, connection.life});
  }

  void Tick(Connection& connection) {
    SendEvent(connection);
    if (connection.fd < 0 || connection.events_left == 0) return;
    connection.due_ns += connection.interval_ns;
    timers_.push({connection.due_ns, &connection, connection.life});
  }

  void SendEvent(Connection& connection) {
    std::array<char, kStampDigits + 1> stamp;
    std::snprintf(
        stamp.data(), stamp.size(), "%0*llu", kStampDigits, static_cast<unsigned long long>(NowNanos()));
    event_.assign(
        R"(data: {"id":"chatcmpl-0","object":"chat.completion.chunk","created":1700000000,"model":"mock",)"
        R"("choices":[{"index":0,"delta":{"content":")");
    event_ += kStampMark;
    event_.append(stamp.data(), kStampDigits);
    constexpr std::string_view kEnd = "\"},\"finish_reason\":null}]}\n\n";
    const size_t size = std::max(connection.event_bytes, event_.size() + 1 + kEnd.size());
    event_.append(size - event_.size() - kEnd.size(), 'x');
    event_ += kEnd;
    AddChunk(event_);
    if (--connection.events_left == 0) {
      AddChunk(
          "data: {\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"choices\":[],\"usage\":"
          "{\"prompt_tokens\":256,\"completion_tokens\":128,\"total_tokens\":384}}\n\ndata: [DONE]\n\n");
      chunks_ += "0\r\n\r\n";
    }
    Send(connection, chunks_);
    chunks_.clear();
    if (connection.fd >= 0 && connection.events_left == 0 && connection.close && connection.out.empty()) {
      Close(connection);
    }
  }

  void AddChunk(std::string_view data) {
    std::array<char, 16> size;
    const char* end = std::to_chars(size.data(), size.data() + size.size(), data.size(), 16).ptr;
    chunks_.append(size.data(), static_cast<size_t>(end - size.data()));
    chunks_ += "\r\n";
    chunks_ += data;
    chunks_ += "\r\n";
  }

  void Send(Connection& connection, std::string_view bytes) {
    if (!connection.out.empty()) {
      connection.out += bytes;
      return;
    }
    const ssize_t sent = send(connection.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) return Close(connection);
    bytes.remove_prefix(static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    if (bytes.empty()) return;
    connection.out = bytes;
    Watch(EPOLL_CTL_MOD, connection.fd, EPOLLIN | EPOLLOUT, &connection);
  }

  // False when the connection has been closed.
  bool Flush(Connection& connection) {
    const ssize_t sent = send(connection.fd, connection.out.data(), connection.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return true;
    if (sent >= 0) connection.out.erase(0, static_cast<size_t>(sent));
    if (sent < 0 || (connection.out.empty() && connection.close && connection.events_left == 0)) {
      Close(connection);
      return false;
    }
    if (connection.out.empty()) Watch(EPOLL_CTL_MOD, connection.fd, EPOLLIN, &connection);
    return true;
  }

  int epoll_;
  int listener_ = -1;
  std::vector<char> scratch_;
  std::string answer_;
  size_t id_at_ = 0;
  std::string event_;
  std::string chunks_;
  double phase_ = 0;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> resting_;
  std::priority_queue<Timer> timers_;
};

}  // namespace
}  // namespace vllm_router::bench

int main(int argc, char** argv) {
  using vllm_router::bench::Flags;
  const Flags flags(argc, argv, {{"port", "0"}, {"response-bytes", "512"}});
  vllm_router::bench::RaiseFileLimit();
  struct sigaction action {};
  action.sa_handler = [](int) { vllm_router::bench::stopped = 1; };
  sigaction(SIGTERM, &action, nullptr);
  sigaction(SIGINT, &action, nullptr);
  vllm_router::bench::Upstream(static_cast<uint16_t>(flags.Count("port")), flags.Count("response-bytes"))
      .Run();
}
