// Sends requests and measures: what they took, and what they cost the processes named by --pids.
//
//   load_generator --port 40123 --mode closed --connections 64 --seconds 5 --pids 4711
//
// One thread, one epoll, one JSON line at the end. Modes:
//   closed   each connection asks again as soon as it has its answer
//   open     requests begin at --rate per second whether or not earlier ones are answered; a request that finds no
//            free connection waits, and its latency counts from when it should have begun (no coordinated omission)
//   stream   each connection holds a stream of events (--stream EVENTS/INTERVAL_US/BYTES); the unit of cost is an
//            event, and its latency runs from the time that upstream.cc wrote into it to when it was read here
//   idle     each connection makes one request and then rests; memory before and after is what matters
//
// Every byte of every answer's body is compared with the longest body seen so far (the times in events excepted),
// and the checksum of a whole one is printed, so that one can see that two proxies did the same work.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cinttypes>
#include <cstring>
#include <deque>
#include <vector>

#include "common.h"
#include "hashing/hash.h"
#include "histogram.h"
#include "usage.h"

namespace vllm_router::bench {
namespace {

constexpr uint64_t kMaxErrors = 1000;
constexpr size_t kMaxBacklog = 1'000'000;
constexpr double kOpenPerSecond = 4000;  // connections at the start, so that no listen queue overflows
constexpr uint32_t kIdleModeParallel = 32;

enum class Mode { kClosed, kOpen, kStream, kIdle };

// Takes the bodies of all answers and finds out whether they are alike.
class Reference {
 public:
  // `at` bytes of this body came before `piece`.
  bool Agrees(size_t at, std::string_view piece) {
    if (at == longest_.size()) {
      longest_ += piece;
      return true;
    }
    const size_t known = std::min(piece.size(), longest_.size() - at);
    if (std::memcmp(longest_.data() + at, piece.data(), known) != 0) return false;
    longest_ += piece.substr(known);
    return true;
  }

  // Called at the end of each body. All bodies must be of one length.
  bool AgreesOnSize(size_t bytes) {
    if (!size_) size_ = bytes;
    return *size_ == bytes;
  }

  // "" as long as no body was whole.
  std::string Checksum() const {
    if (!size_) return "";
    std::array<char, 17> digits;
    std::snprintf(
        digits.data(), digits.size(), "%016" PRIx64, Xxh3(std::string_view(longest_).substr(0, *size_)));
    return digits.data();
  }

  size_t size() const { return size_.value_or(0); }

 private:
  std::string longest_;
  std::optional<size_t> size_;
};

// Reads one answer after another from bytes in pieces of any size.
class AnswerReader {
 public:
  enum class State { kHead, kLength, kChunkSize, kChunkData, kChunkEnd, kLastLine, kDone, kBad };

  // `on_event(sent_ns)` is called for each event whose time was read. Bytes behind the answer's end make it bad:
  // nothing here pipelines.
  template <typename OnEvent>
  State Feed(std::string_view bytes, Reference& reference, OnEvent on_event) {
    while (!bytes.empty() && state_ != State::kBad) {
      switch (state_) {
        case State::kHead:
          bytes.remove_prefix(FeedHead(bytes));
          break;
        case State::kLength: {
          const std::string_view piece = bytes.substr(0, left_);
          Body(piece, reference, on_event);
          bytes.remove_prefix(piece.size());
          left_ -= piece.size();
          if (left_ == 0 && state_ != State::kBad) End(reference);
          break;
        }
        case State::kChunkSize:
          bytes.remove_prefix(FeedChunkSize(bytes));
          break;
        case State::kChunkData: {
          const std::string_view piece = bytes.substr(0, left_);
          Body(piece, reference, on_event);
          bytes.remove_prefix(piece.size());
          left_ -= piece.size();
          if (left_ == 0 && state_ != State::kBad) Expect("\r\n", State::kChunkEnd);
          break;
        }
        case State::kChunkEnd:
        case State::kLastLine:
          FeedExpected(bytes, reference);
          break;
        default:
          state_ = State::kBad;
          break;  // kDone: more than an answer
      }
    }
    return state_;
  }

  void Reset() { *this = AnswerReader(); }
  State state() const { return state_; }
  int status() const { return status_; }
  bool close() const { return close_; }
  bool differs() const { return differs_; }
  bool begun() const { return state_ != State::kHead || !head_.empty(); }

 private:
  size_t FeedHead(std::string_view bytes) {
    // Nearly always the head comes in one piece; then it is not copied.
    const size_t before = head_.size();
    if (before > 0) head_ += bytes;
    const std::string_view all = before > 0 ? std::string_view(head_) : bytes;
    const std::optional<Head> head = FindHead(all);
    if (!head) {
      if (before == 0) head_ = bytes;
      return bytes.size();
    }
    const size_t used = head->bytes - before;
    status_ = head->start_line.size() > 12 ? std::atoi(head->start_line.data() + 9) : 0;
    close_ = head->close;
    if (head->chunked) {
      state_ = State::kChunkSize;
    } else if (head->content_length && *head->content_length > 0) {
      state_ = State::kLength;
      left_ = *head->content_length;
    } else {
      state_ = State::kBad;  // all our answers have a body
    }
    if (status_ != 200) state_ = State::kBad;
    head_.clear();
    return used;
  }

  size_t FeedChunkSize(std::string_view bytes) {
    size_t used = 0;
    while (used < bytes.size()) {
      const char c = bytes[used++];
      const int digit = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : -1;
      if (digit >= 0) {
        left_ = left_ * 16 + static_cast<uint64_t>(digit);
      } else if (c == '\n') {
        if (left_ > 0) {
          state_ = State::kChunkData;
        } else {
          Expect("\r\n", State::kLastLine);
        }
        return used;
      } else if (c != '\r') {
        state_ = State::kBad;
        return used;
      }
    }
    return used;
  }

  void Expect(std::string_view expected, State state) {
    expected_ = expected;
    state_ = state;
  }

  void FeedExpected(std::string_view& bytes, Reference& reference) {
    if (bytes.front() != expected_.front()) {
      state_ = State::kBad;
      return;
    }
    bytes.remove_prefix(1);
    expected_.remove_prefix(1);
    if (!expected_.empty()) return;
    if (state_ == State::kLastLine) {
      End(reference);
    } else {
      state_ = State::kChunkSize;
    }
  }

  template <typename OnEvent>
  void Body(std::string_view piece, Reference& reference, OnEvent on_event) {
    while (!piece.empty()) {
      if (stamp_digits_ > 0) {
        stamp_ = stamp_ * 10 + static_cast<uint64_t>(piece.front() - '0');
        piece.remove_prefix(1);
        if (--stamp_digits_ == 0) on_event(stamp_);
        continue;
      }
      const size_t mark = piece.find(kStampMark);
      const std::string_view plain = piece.substr(0, mark == std::string_view::npos ? mark : mark + 1);
      if (!reference.Agrees(bytes_, plain)) {
        differs_ = true;
        state_ = State::kBad;
        return;
      }
      bytes_ += plain.size();
      piece.remove_prefix(plain.size());
      if (mark != std::string_view::npos) {
        stamp_ = 0;
        stamp_digits_ = kStampDigits;
      }
    }
  }

  void End(Reference& reference) {
    differs_ = !reference.AgreesOnSize(bytes_);
    state_ = differs_ ? State::kBad : State::kDone;
  }

  State state_ = State::kHead;
  std::string head_;
  int status_ = 0;
  bool close_ = false;
  bool differs_ = false;
  uint64_t left_ = 0;
  size_t bytes_ = 0;  // of the body, stamps excepted
  std::string_view expected_;
  uint64_t stamp_ = 0;
  int stamp_digits_ = 0;
};

struct Connection {
  int fd = -1;
  bool connected = false;
  bool busy = false;
  size_t unsent = 0;  // bytes at the end of the request
  uint64_t began_ns = 0;
  AnswerReader answer;
};

struct Errors {
  uint64_t connect = 0;  // refused, or no descriptor
  uint64_t closed = 0;   // before the answer's end
  uint64_t status = 0;   // not 200
  uint64_t differs = 0;  // a body unlike the others
  uint64_t framing = 0;  // not the HTTP that was expected
  uint64_t all() const { return connect + closed + status + differs + framing; }
};

class Generator {
 public:
  explicit Generator(const Flags& flags)
      : epoll_(epoll_create1(EPOLL_CLOEXEC)),
        scratch_(256 << 10),
        mode_(ModeOf(flags.Text("mode"))),
        port_(static_cast<uint16_t>(flags.Count("port"))),
        close_(flags.Count("close") != 0),
        seconds_(flags.Number("seconds")),
        warmup_(flags.Number("warmup")),
        rate_(flags.Number("rate")),
        most_requests_(flags.Count("requests")),
        connections_(flags.Count("connections")) {
    if (mode_ == Mode::kOpen && rate_ <= 0) Fail("load_generator: --mode open needs a --rate above 0");
    if (connections_.empty()) Fail("load_generator: --connections must be above 0");
    const std::string& pids = flags.Text("pids");
    for (const char* at = pids.c_str(); *at != 0;) {
      char* end = nullptr;
      pids_.push_back(static_cast<int>(std::strtol(at, &end, 10)));
      at = *end == ',' ? end + 1 : end;
      if (end == at && *at != 0) Fail("load_generator: --pids must be numbers with commas, not " + pids);
    }
    MakeRequest(flags.Count("body-bytes"), flags.Text("stream"));
  }

  void Run() {
    before_ = begin_ = ReadUsage(pids_);
    begin_ns_ = NowNanos();
    OpenAll();
    if (mode_ == Mode::kIdle) {
      RunIdle();
    } else {
      TurnFor(warmup_);
      BeginWindow();
      while (NowNanos() < end_ns_ && !(most_requests_ > 0 && latency_.count() >= most_requests_))
        Turn(end_ns_);
    }
    Report();
  }

 private:
  static Mode ModeOf(const std::string& name) {
    if (name == "closed") return Mode::kClosed;
    if (name == "open") return Mode::kOpen;
    if (name == "stream") return Mode::kStream;
    if (name == "idle") return Mode::kIdle;
    Fail("load_generator: --mode must be closed, open, stream or idle, not " + name);
  }

  // A chat as OpenAI's Python client sends it, with a body of just so many bytes.
  void MakeRequest(size_t body_bytes, const std::string& stream) {
    std::string body = std::string(R"({"model":"mock","stream":)") + (stream.empty() ? "false" : "true") +
                       R"(,"user":"u-123","temperature":0,"max_tokens":128,"messages":[{"role":"system",)"
                       R"("content":)"
                       R"("You are a helpful assistant."},{"role":"user","content":")";
    constexpr std::string_view kEnd = R"("}]})";
    constexpr std::string_view kText = "lorem ipsum dolor sit amet, consectetur ";
    if (body_bytes < body.size() + kEnd.size()) body_bytes = body.size() + kEnd.size();
    for (size_t i = 0; body.size() < body_bytes - kEnd.size(); ++i) body += kText[i % kText.size()];
    body += kEnd;
    request_ =
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:" + std::to_string(port_) +
        "\r\nAccept-Encoding: gzip, deflate\r\nConnection: " + (close_ ? "close" : "keep-alive") +
        "\r\nAccept: application/json\r\nContent-Type: application/json\r\n"
        "User-Agent: OpenAI/Python 1.40.0\r\nX-Stainless-Lang: python\r\n"
        "X-Stainless-Package-Version: 1.40.0\r\nX-Stainless-OS: Linux\r\nX-Stainless-Arch: x64\r\n"
        "X-Stainless-Runtime: CPython\r\nX-Stainless-Runtime-Version: 3.11.2\r\nX-Stainless-Async: false\r\n"
        "Authorization: Bearer sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n" +
        (stream.empty() ? "" : "X-Mock-Stream: " + stream + "\r\n") +
        "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  }

  // ---- the life of a run

  void OpenAll() {
    const uint64_t begin = NowNanos();
    size_t opened = 0;
    while (opened < connections_.size()) {
      const uint64_t now = NowNanos();
      const double due = static_cast<double>(now - begin) / 1e9 * kOpenPerSecond + 1;
      for (; opened < connections_.size() && static_cast<double>(opened) < due; ++opened) {
        Connection& connection = connections_[opened];
        if (mode_ == Mode::kOpen || mode_ == Mode::kIdle) {
          free_.push_back(&connection);
        } else {
          Ask(connection, NowNanos());
        }
      }
      if (mode_ != Mode::kOpen && mode_ != Mode::kIdle) Turn(NowNanos() + 250'000);
    }
    next_ns_ = NowNanos();
  }

  void TurnFor(double seconds) {
    const uint64_t end = NowNanos() + static_cast<uint64_t>(seconds * 1e9);
    while (NowNanos() < end) Turn(end);
  }

  // Each connection asks once, few at a time so that nothing but connections piles up; then all rest.
  void RunIdle() {
    const uint64_t give_up = NowNanos() + 60'000'000'000;
    while (!free_.empty() || busy_ > 0) {
      while (!free_.empty() && busy_ < kIdleModeParallel) {
        Connection* connection = free_.front();
        free_.pop_front();
        Ask(*connection, NowNanos());
      }
      Turn(NowNanos() + 1'000'000);
      if (NowNanos() > give_up) Fail("load_generator: the connections were not all served within 60 s");
    }
    TurnFor(seconds_);
  }

  void BeginWindow() {
    latency_.Clear();
    event_latency_.Clear();
    late_.Clear();
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own_cpu_);
    begin_ = ReadUsage(pids_);
    begin_ns_ = NowNanos();
    end_ns_ = begin_ns_ + static_cast<uint64_t>(seconds_ * 1e9);
  }

  void Turn(uint64_t until_ns) {
    uint64_t now = NowNanos();
    if (mode_ == Mode::kOpen) {
      while (next_ns_ <= now) {
        if (free_.empty()) {
          if (backlog_.size() == kMaxBacklog)
            Fail("load_generator: a million requests wait: --rate is too high");
          backlog_.push_back(next_ns_);
        } else {
          Connection* connection = free_.front();
          free_.pop_front();
          late_.Add(now - next_ns_);
          Ask(*connection, next_ns_);
        }
        next_ns_ += static_cast<uint64_t>(1e9 / rate_);
        now = NowNanos();
      }
      until_ns = std::min(until_ns, next_ns_);
    }
    const uint64_t left = until_ns > now ? until_ns - now : 0;
    const timespec timeout{
        static_cast<time_t>(left / 1'000'000'000), static_cast<long>(left % 1'000'000'000)};
    std::array<epoll_event, 256> events;
    const int count = epoll_pwait2(epoll_, events.data(), events.size(), &timeout, nullptr);
    for (int i = 0; i < count; ++i) OnEvent(*static_cast<Connection*>(events[i].data.ptr), events[i].events);
    if (errors_.all() > kMaxErrors) {
      Report();
      Fail("load_generator: more than " + std::to_string(kMaxErrors) + " errors; gave up");
    }
  }

  // ---- one request

  void Ask(Connection& connection, uint64_t began_ns) {
    connection.busy = true;
    ++busy_;
    connection.began_ns = began_ns;
    connection.unsent = request_.size();
    connection.answer.Reset();
    if (connection.fd < 0) {
      Open(connection);
    } else if (connection.connected) {
      Write(connection);
    }
  }

  void Open(Connection& connection) {
    connection.connected = false;
    connection.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    const int one = 1;
    setsockopt(connection.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port_);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const int connected = connect(connection.fd, reinterpret_cast<sockaddr*>(&address), sizeof address);
    if (connection.fd < 0 || (connected != 0 && errno != EINPROGRESS)) {
      Fail(std::string("load_generator: cannot connect: ") + std::strerror(errno));
    }
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT | EPOLLET;
    event.data.ptr = &connection;
    epoll_ctl(epoll_, EPOLL_CTL_ADD, connection.fd, &event);
  }

  void Write(Connection& connection) {
    while (connection.unsent > 0) {
      const char* rest = request_.data() + request_.size() - connection.unsent;
      const ssize_t sent = send(connection.fd, rest, connection.unsent, MSG_NOSIGNAL);
      if (sent < 0) return;  // would block, or an error that the next read will tell
      connection.unsent -= static_cast<size_t>(sent);
    }
  }

  void OnEvent(Connection& connection, uint32_t events) {
    if (connection.fd < 0) return;
    if ((events & EPOLLERR) != 0 && !connection.connected) return Lose(connection, errors_.connect);
    if ((events & EPOLLOUT) != 0) {
      connection.connected = true;
      if (connection.busy) Write(connection);
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) == 0) return;
    for (;;) {
      const ssize_t read = recv(connection.fd, scratch_.data(), scratch_.size(), 0);
      if (read < 0 && errno == EAGAIN) return;
      if (read <= 0) return Lose(connection, errors_.closed);
      if (!connection.busy) return Lose(connection, errors_.framing);
      const uint64_t now = NowNanos();
      const AnswerReader::State state = connection.answer.Feed(
          {scratch_.data(), static_cast<size_t>(read)}, reference_,
          [&](uint64_t sent_ns) { event_latency_.Add(now > sent_ns ? now - sent_ns : 0); });
      if (state == AnswerReader::State::kBad) {
        const AnswerReader& answer = connection.answer;
        return Lose(
            connection, answer.differs()         ? errors_.differs
                        : answer.status() != 200 ? errors_.status
                                                 : errors_.framing);
      }
      if (state == AnswerReader::State::kDone) return Finish(connection, now);
      if (static_cast<size_t>(read) < scratch_.size()) return;
    }
  }

  void Finish(Connection& connection, uint64_t now) {
    latency_.Add(now - connection.began_ns);
    connection.busy = false;
    --busy_;
    if (close_ || connection.answer.close()) {
      close(connection.fd);
      connection.fd = -1;
    }
    GoOn(connection);
  }

  // What the connection does next.
  void GoOn(Connection& connection) {
    if (mode_ == Mode::kIdle) return;
    if (mode_ != Mode::kOpen) return Ask(connection, NowNanos());
    if (backlog_.empty()) return free_.push_back(&connection);
    const uint64_t began_ns = backlog_.front();
    backlog_.pop_front();
    Ask(connection, began_ns);
  }

  void Lose(Connection& connection, uint64_t& count) {
    close(connection.fd);
    connection.fd = -1;
    if (!connection.busy) {  // a proxy may close what rests; only in idle mode that is what we must not see
      if (mode_ == Mode::kIdle) ++count;
      return;
    }
    ++count;
    connection.busy = false;
    --busy_;
    if (errors_.all() <= kMaxErrors) GoOn(connection);
  }

  // ---- the result

  void Report() {
    const uint64_t now = NowNanos();
    const Usage after = ReadUsage(pids_);
    timespec own{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
    const double seconds = static_cast<double>(now - begin_ns_) / 1e9;
    const uint64_t requests = latency_.count();
    const uint64_t events = event_latency_.count();
    const uint64_t units = std::max<uint64_t>(1, mode_ == Mode::kStream ? events : requests);
    const double cpu_us = static_cast<double>(after.cpu_ns - begin_.cpu_ns) / 1000;
    const double own_us = static_cast<double>(own.tv_sec - own_cpu_.tv_sec) * 1e6 +
                          static_cast<double>(own.tv_nsec - own_cpu_.tv_nsec) / 1e3;
    const double user = static_cast<double>(after.user_ticks - begin_.user_ticks);
    const double system = static_cast<double>(after.system_ticks - begin_.system_ticks);
    std::string cores;
    for (size_t i = 0; i < after.core_all_ticks.size(); ++i) {
      const uint64_t all = after.core_all_ticks[i] - begin_.core_all_ticks[i];
      const uint64_t busy = after.core_busy_ticks[i] - begin_.core_busy_ticks[i];
      std::array<char, 32> share;
      std::snprintf(
          share.data(), share.size(), "%s%.3f", i == 0 ? "" : ", ",
          all == 0 ? 0 : static_cast<double>(busy) / static_cast<double>(all));
      cores += share.data();
    }
    std::printf(
        "{\"seconds\": %.3f, \"requests\": %" PRIu64 ", \"rps\": %.1f, \"events\": %" PRIu64
        ", \"events_per_second\": %.1f, \"cpu_us\": %.3f, \"user_share\": %.3f, \"own_cpu_us\": %.3f"
        ", \"own_core\": %d, \"core_busy\": [%s], \"rss_anon_before_kb\": %" PRIu64
        ", \"rss_anon_after_kb\": %" PRIu64
        ", \"bytes_per_connection\": %.1f, \"body_bytes\": %zu"
        ", \"checksum\": \"%s\", \"backlog\": %zu",
        seconds, requests, static_cast<double>(requests) / seconds, events,
        static_cast<double>(events) / seconds, cpu_us / static_cast<double>(units),
        user + system > 0 ? user / (user + system) : 0, own_us / static_cast<double>(units), OwnCore(),
        cores.c_str(), before_.rss_anon_kb, after.rss_anon_kb,
        (static_cast<double>(after.rss_anon_kb) - static_cast<double>(before_.rss_anon_kb)) * 1024 /
            static_cast<double>(connections_.size()),
        reference_.size(), reference_.Checksum().c_str(), backlog_.size());
    PrintPercentiles("latency_us", latency_);
    PrintPercentiles("event_latency_us", event_latency_);
    PrintPercentiles("late_us", late_);
    std::printf(
        ", \"errors\": {\"all\": %" PRIu64 ", \"connect\": %" PRIu64 ", \"closed\": %" PRIu64
        ", \"status\": %" PRIu64 ", \"differs\": %" PRIu64 ", \"framing\": %" PRIu64 "}}\n",
        errors_.all(), errors_.connect, errors_.closed, errors_.status, errors_.differs, errors_.framing);
    std::fflush(stdout);
  }

  static void PrintPercentiles(const char* name, const Histogram& histogram) {
    std::printf(
        ", \"%s\": {\"p50\": %.1f, \"p90\": %.1f, \"p99\": %.1f, \"p999\": %.1f}", name,
        histogram.Percentile(0.5), histogram.Percentile(0.9), histogram.Percentile(0.99),
        histogram.Percentile(0.999));
  }

  // The core this process is bound to; -1 if it may run on several.
  static int OwnCore() {
    cpu_set_t set;
    CPU_ZERO(&set);
    sched_getaffinity(0, sizeof set, &set);
    if (CPU_COUNT(&set) != 1) return -1;
    for (int i = 0; i < CPU_SETSIZE; ++i) {
      if (CPU_ISSET(i, &set)) return i;
    }
    return -1;
  }

  int epoll_;
  std::vector<char> scratch_;
  Mode mode_;
  uint16_t port_;
  bool close_;
  double seconds_;
  double warmup_;
  double rate_;
  uint64_t most_requests_;
  std::vector<int> pids_;
  std::string request_;

  std::vector<Connection> connections_;
  std::deque<Connection*> free_;  // open and idle mode: those without a request
  std::deque<uint64_t> backlog_;  // open mode: when requests that wait for a connection should have begun
  uint64_t next_ns_ = 0;          // open mode: when the next request begins
  uint32_t busy_ = 0;

  uint64_t begin_ns_ = 0;
  uint64_t end_ns_ = 0;
  Usage before_;  // before the first connection
  Usage begin_;   // at the begin of the window
  timespec own_cpu_{};
  Histogram latency_;
  Histogram event_latency_;
  Histogram late_;  // open mode: how late this program itself was
  Reference reference_;
  Errors errors_;
};

}  // namespace
}  // namespace vllm_router::bench

int main(int argc, char** argv) {
  using vllm_router::bench::Flags;
  const Flags flags(
      argc, argv,
      {{"mode", "closed"},
       {"port", ""},
       {"connections", "64"},
       {"seconds", "5"},   // of the measured window
       {"warmup", "0.5"},  // seconds before it
       {"requests", "0"},  // end the window early after so many; 0 is never
       {"rate", "0"},      // requests per second, open mode
       {"body-bytes", "1024"},
       {"stream", ""},  // EVENTS/INTERVAL_US/BYTES: ask for a stream
       {"close", "0"},  // 1: Connection: close
       {"pids", ""}});  // whose CPU and memory to read, with commas
  vllm_router::bench::RaiseFileLimit();
  prctl(PR_SET_TIMERSLACK, 1);  // open mode wants to wake when it said
  vllm_router::bench::Generator(flags).Run();
}
