// The net library for tests: each harness owns a loop on its own thread, and runs that thread's work
// there while the caller waits without the GIL.
#include <pybind11/stl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <thread>

#include "base/mutex.h"
#include "bindings/bindings.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/frame_pool.h"
#include "net/listener.h"
#include "net/ready_set.h"
#include "net/resolver.h"
#include "net/socket.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "net/write_all.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/exchange/sse_keepalive.h"

namespace vllm_router {
namespace {

namespace py = pybind11;

py::bytes Bytes(std::string_view text) { return py::bytes(text.data(), text.size()); }

class LoopThread {
 public:
  LoopThread() : thread_([this] { loop_.Run(); }) {}
  ~LoopThread() { Join(); }
  // No task runs any more; the objects that they referred to may be destroyed.
  void Join() {
    if (!thread_.joinable()) return;
    loop_.Stop();
    thread_.join();
  }

  EventLoop& loop() { return loop_; }

  // Runs `function` on the loop's thread and waits for its result.
  template <typename Function>
  auto Call(Function function) {
    const py::gil_scoped_release release;
    using Result = decltype(function());
    std::promise<Result> promise;
    std::future<Result> future = promise.get_future();
    loop_.Post([&] {
      if constexpr (std::is_void_v<Result>) {
        function();
        promise.set_value();
      } else {
        promise.set_value(function());
      }
    });
    return future.get();
  }

 private:
  EventLoop loop_;
  std::thread thread_;
};

// A result that a coroutine or callback delivers later.
template <typename T>
class Later {
 public:
  void Set(T value) {
    MutexLock lock(mutex_);
    value_ = std::move(value);
    changed_.notify_all();
  }
  bool done() {
    MutexLock lock(mutex_);
    return value_.has_value();
  }
  T Get(double patience) {
    const py::gil_scoped_release release;
    MutexLock lock(mutex_);
    if (!changed_.wait_for(
            lock.native(), std::chrono::duration<double>(patience),
            [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return value_.has_value(); })) {
      throw std::runtime_error("it did not happen in time");
    }
    return *value_;
  }

 private:
  Mutex mutex_;
  std::condition_variable changed_;
  std::optional<T> value_ ABSL_GUARDED_BY(mutex_);
};

template <typename T>
void BindLater(py::module_& testing, const char* name) {
  py::class_<Later<T>, std::shared_ptr<Later<T>>>(testing, name)
      .def_property_readonly("done", &Later<T>::done)
      .def("get", &Later<T>::Get, py::arg("patience") = 30.0);
}

// ---- buffer

class BufferHarness {
 public:
  BufferHarness() : buffer_(std::in_place, pool_) {}

  Buffer& buffer() { return *buffer_; }
  BufferPool& pool() { return pool_; }
  void Append(const std::string& bytes) { buffer_->Append(bytes); }
  // As a socket does: into room(), then Commit().
  void Receive(const std::string& bytes) {
    if (bytes.size() > buffer_->room().size()) throw py::value_error("no room");
    std::memcpy(buffer_->room().data(), bytes.data(), bytes.size());
    buffer_->Commit(bytes.size());
  }
  void Move() {
    Buffer other = std::move(*buffer_);
    Buffer target(pool_);
    target.Append("overwritten");
    target = std::move(other);
    buffer_.emplace(std::move(target));
  }
  // Reads behind the content as far as simdjson may.
  int PaddingSum() {
    int sum = 0;
    const char* end = buffer_->data() + buffer_->size();
    for (size_t i = 0; i < BufferPool::kPadding; ++i) sum += end[i] == 0 ? 0 : 1;
    return sum;
  }

 private:
  BufferPool pool_;
  std::optional<Buffer> buffer_;
};

// ---- timer wheel

class WheelHarness {
 public:
  explicit WheelHarness(int64_t now_ms)
      : now_ms_(now_ms),
        wheel_(std::make_unique<TimerWheel>([this] { return now_ms_; }, [this] { ++wakes_; })) {}

  struct Named {
    WheelHarness* harness;
    int name;
    Timer timer;
    std::function<void()> also;
  };

  void Arm(int name, int64_t delay_ms) { TimerOf(name).timer.Arm(*wheel_, delay_ms, &Fire, &TimerOf(name)); }
  void Disarm(int name) { TimerOf(name).timer.Disarm(); }
  void Drop(int name) { timers_.erase(name); }
  bool IsArmed(int name) { return TimerOf(name).timer.armed(); }
  // What the callback of `name` does in addition: arm, disarm or drop another.
  void WhenFired(int name, const std::string& what, int other, int64_t delay_ms) {
    TimerOf(name).also = [this, what, other, delay_ms] {
      if (what == "arm") Arm(other, delay_ms);
      if (what == "disarm") Disarm(other);
      if (what == "drop") Drop(other);
    };
  }
  // Advances the clock and ticks once.
  bool Tick(int64_t pass_ms) {
    now_ms_ += pass_ms;
    return wheel_->Tick();
  }
  std::vector<int> TakeFired() { return std::exchange(fired_, {}); }
  size_t armed() const { return wheel_->armed(); }
  int wakes() const { return wakes_; }
  int64_t now_ms() const { return now_ms_; }
  void DropWheel() { wheel_.reset(); }

 private:
  Named& TimerOf(int name) {
    std::unique_ptr<Named>& timer = timers_[name];
    if (timer == nullptr) timer.reset(new Named{this, name, {}, {}});
    return *timer;
  }
  static void Fire(void* context) {
    auto* named = static_cast<Named*>(context);
    named->harness->fired_.push_back(named->name);
    if (named->also) named->also();
  }

  int64_t now_ms_;
  int wakes_ = 0;
  std::unique_ptr<TimerWheel> wheel_;
  std::map<int, std::unique_ptr<Named>> timers_;
  std::vector<int> fired_;
};

// ---- task

Task<int> Deep(int depth) {
  if (depth == 0) co_return 0;
  const int below = co_await Deep(depth - 1);
  co_return below + 1;
}

int RunDeep(int depth) {
  int result = -1;
  Spawn([](int depth, int* result) -> Task<void> { *result = co_await Deep(depth); }(depth, &result));
  return result;
}

// The events, in order, when one task waits for a signal that another gives.
std::vector<std::string> SignalStory(bool notify_first, int notifications) {
  std::vector<std::string> story;
  Signal signal;
  const auto waiter = [](Signal& signal, std::vector<std::string>& story) -> Task<void> {
    story.push_back("waits");
    co_await signal;
    story.push_back("goes on");
  };
  if (!notify_first) Spawn(waiter(signal, story));
  for (int i = 0; i < notifications; ++i) {
    story.push_back("notify");
    signal.Notify();
  }
  if (notify_first) Spawn(waiter(signal, story));
  Spawn([](Signal& signal, std::vector<std::string>& story) -> Task<void> {
    story.push_back("second waits");
    co_await signal;
    story.push_back("second goes on");
  }(signal, story));
  story.push_back("end");
  signal.Notify();
  return story;
}

// Counts how many of a task's locals were destroyed when it was dropped before it ran, and after.
int DestroyedLocals(bool run) {
  struct Counted {
    int* count;
    explicit Counted(int* count) : count(count) {}
    Counted(Counted&& other) noexcept : count(std::exchange(other.count, nullptr)) {}
    ~Counted() {
      if (count != nullptr) ++*count;
    }
  };
  int destroyed = 0;
  const auto body = [](Counted counted) -> Task<void> {
    Counted local(counted.count);
    co_return;
  };
  {
    Task<void> task = body(Counted(&destroyed));
    if (run) Spawn(std::move(task));
  }
  return destroyed;
}

// ---- event loop

class LoopHarness {
 public:
  ~LoopHarness() {
    if (delay_ != nullptr) CancelDelay();
    thread_.Call([] {});
    thread_.Join();
  }

  // Order in which functions posted from here are run, each noting its number.
  std::vector<int> PostedOrder(int count) {
    auto order = std::make_shared<std::vector<int>>();
    for (int i = 0; i < count; ++i) {
      thread_.loop().Post([order, i] { order->push_back(i); });
    }
    return thread_.Call([order] { return *order; });
  }
  // Two tasks that yield after each step: the steps in the order in which they ran.
  std::string Yields(int steps) {
    auto story = std::make_shared<std::string>();
    const auto run = [](EventLoop& loop, std::shared_ptr<std::string> story, char name,
                        int steps) -> Task<void> {
      for (int i = 0; i < steps; ++i) {
        story->push_back(name);
        co_await loop.Yield();
      }
    };
    thread_.Call([&] {
      Spawn(run(thread_.loop(), story, 'a', steps));
      Spawn(run(thread_.loop(), story, 'b', steps));
    });
    for (int i = 0; i < 2 * steps + 2; ++i) thread_.Call([] {});
    return *story;
  }
  std::shared_ptr<Later<bool>> StartDelay(double seconds) {
    auto later = std::make_shared<Later<bool>>();
    thread_.Call([&] {
      delay_ = std::make_unique<Delay>(thread_.loop());
      Spawn([](Delay& delay, int64_t nanos, std::shared_ptr<Later<bool>> later) -> Task<void> {
        const bool elapsed = co_await delay.For(nanos);
        later->Set(elapsed);
      }(*delay_, static_cast<int64_t>(seconds * 1e9), later));
    });
    return later;
  }
  void CancelDelay() {
    thread_.Call([this] { delay_->Cancel(); });
  }
  // Fires after `ms` by the loop's own wheel and clock; "now" in milliseconds passed.
  std::shared_ptr<Later<double>> StartTimer(int64_t ms) {
    auto later = std::make_shared<Later<double>>();
    thread_.Call([&] {
      auto* armed = new Armed{{}, later, std::chrono::steady_clock::now()};
      armed->timer.Arm(
          thread_.loop().timers(), ms,
          [](void* context) {
            const std::unique_ptr<Armed> owned(static_cast<Armed*>(context));
            const std::chrono::duration<double, std::milli> passed =
                std::chrono::steady_clock::now() - owned->since;
            owned->later->Set(passed.count());
          },
          armed);
    });
    return later;
  }

 private:
  struct Armed {
    Timer timer;
    std::shared_ptr<Later<double>> later;
    std::chrono::steady_clock::time_point since;
  };
  LoopThread thread_;
  std::unique_ptr<Delay> delay_;
};

// ---- frame pool

// Takes a piece of each size, fills it, and gives all back in order.
std::vector<uintptr_t> FramePoolAddresses(const std::vector<size_t>& sizes) {
  std::vector<void*> pieces;
  for (const size_t size : sizes) {
    pieces.push_back(FramePool::Acquire(size));
    std::memset(pieces.back(), 0xa5, size);
  }
  std::vector<uintptr_t> addresses;
  for (size_t i = 0; i < sizes.size(); ++i) {
    addresses.push_back(reinterpret_cast<uintptr_t>(pieces[i]));
    FramePool::Release(pieces[i], sizes[i]);
  }
  return addresses;
}

// One thread takes, another gives back and ends. Returns how many pieces went that way.
size_t FramePoolAcrossThreads(size_t count) {
  std::vector<void*> pieces;
  std::thread([&] {
    for (size_t i = 0; i < count; ++i) pieces.push_back(FramePool::Acquire(100));
  }).join();
  std::thread([&] {
    for (void* const piece : pieces) FramePool::Release(piece, 100);
  }).join();
  return pieces.size();
}

// ---- ready set

// Members are ends of socket pairs, named by number; a turn returns the events of each.
class ReadySetHarness {
 public:
  ~ReadySetHarness() {
    for (size_t i = 0; i < members_.size(); ++i) {
      if (members_[i] != nullptr) Remove(i);
      ::close(peers_[i]);
    }
  }
  size_t Add(std::string_view sent_before) {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) != 0)
      throw std::runtime_error("socketpair");
    const size_t name = members_.size();
    members_.push_back(std::make_shared<Told>(this, name, ends[0]));
    peers_.push_back(ends[1]);
    if (!sent_before.empty()) Send(name, sent_before);
    if (!set_.Add(ends[0], members_[name].get())) throw std::runtime_error("Add");
    return name;
  }
  void Send(size_t name, std::string_view bytes) {
    if (::write(peers_.at(name), bytes.data(), bytes.size()) < 0) throw std::runtime_error("write");
  }
  void End(size_t name) { ::shutdown(peers_.at(name), SHUT_WR); }
  void AwaitWritable(size_t name) { set_.AwaitWritable(members_.at(name)->descriptor, members_[name].get()); }
  // As a child process has it, until it executes its program.
  int Duplicate(size_t name) { return ::dup(members_.at(name)->descriptor); }
  void RemoveNow(size_t name) { Remove(name); }
  void RemoveWhenTold(size_t name, size_t other) { members_.at(name)->victim = other; }
  bool alive(size_t name) const { return !seen_.at(name).expired(); }
  std::vector<std::pair<size_t, std::string>> Turn() {
    seen_.assign(members_.begin(), members_.end());
    told_.clear();
    set_.Turn();
    return told_;
  }

 private:
  struct Told final : ReadySet::Member {
    Told(ReadySetHarness* harness, size_t name, int descriptor)
        : harness(harness), name(name), descriptor(descriptor) {}
    void OnReady(uint32_t events) override {
      std::string words;
      const std::pair<uint32_t, const char*> all[] = {
          {EPOLLIN, "in"}, {EPOLLOUT, "out"}, {EPOLLRDHUP, "rdhup"}, {EPOLLHUP, "hup"}, {EPOLLERR, "err"}};
      for (const auto& [event, word] : all) {
        if (events & event) words.append(words.empty() ? "" : "|").append(word);
      }
      harness->told_.emplace_back(name, words);
      if (victim && harness->members_[*victim] != nullptr) harness->Remove(*victim);
    }
    ReadySetHarness* const harness;
    const size_t name;
    const int descriptor;
    std::optional<size_t> victim;
  };
  void Remove(size_t name) {
    const int descriptor = members_[name]->descriptor;
    set_.Remove(descriptor, std::move(members_[name]));
    ::close(descriptor);
  }

  ReadySet set_;
  std::vector<std::shared_ptr<Told>> members_;
  std::vector<std::weak_ptr<Told>> seen_;
  std::vector<int> peers_;
  std::vector<std::pair<size_t, std::string>> told_;
};

// The error of making a set when the process has no descriptor left.
std::string ReadySetWithoutDescriptors() {
  rlimit before{};
  ::getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 0, .rlim_max = before.rlim_max};
  ::setrlimit(RLIMIT_NOFILE, &none);
  std::string said;
  try {
    ReadySet set;
  } catch (const std::system_error& error) {
    said = error.what();
  }
  ::setrlimit(RLIMIT_NOFILE, &before);
  return said;
}

// ---- socket

std::vector<iovec> Pieces(const std::vector<std::string>& pieces) {
  std::vector<iovec> vectors;
  for (const std::string& piece : pieces) vectors.push_back(Piece(piece));
  return vectors;
}

class SocketHarness {
 public:
  explicit SocketHarness(int descriptor) {
    thread_.Call([&] { socket_ = Socket(thread_.loop(), descriptor); });
  }
  ~SocketHarness() {
    thread_.Call([this] { socket_.Close(); });
    thread_.Call([] {});  // waiters have been resumed
    thread_.Join();
  }

  static py::dict ToDict(const IoResult& result, std::string_view data = {}) {
    py::dict dict;
    dict["bytes"] = result.bytes;
    dict["error"] = result.error;
    dict["eof"] = result.eof;
    dict["would_block"] = result.would_block();
    dict["data"] = Bytes(data);
    return dict;
  }
  py::dict TryRead(size_t most) {
    std::string room(most, '\0');
    const IoResult result = thread_.Call([&] { return socket_.TryRead(room); });
    return ToDict(
        result, std::string_view(room).substr(0, static_cast<size_t>(std::max<int64_t>(0, result.bytes))));
  }
  py::dict TryWrite(const std::vector<std::string>& pieces) {
    const std::vector<iovec> vectors = Pieces(pieces);
    return ToDict(thread_.Call([&] { return socket_.TryWrite(vectors); }));
  }
  bool IsBroken() {
    return thread_.Call([this] { return socket_.IsBroken(); });
  }
  bool HasUnread() {
    return thread_.Call([this] { return socket_.HasUnread(); });
  }
  bool is_open() {
    return thread_.Call([this] { return socket_.is_open(); });
  }
  void Close() {
    thread_.Call([this] { socket_.Close(); });
  }
  void Abort() {
    thread_.Call([this] { socket_.Abort(); });
  }
  void ShutdownWrite() {
    thread_.Call([this] { socket_.ShutdownWrite(); });
  }
  void InterruptRead() {
    thread_.Call([this] { socket_.InterruptRead(); });
  }
  // A few turns of the loop, so that pending events have been noticed.
  void Turn() {
    for (int i = 0; i < 3; ++i) thread_.Call([] {});
  }

  std::shared_ptr<Later<bool>> Readable() {
    auto later = std::make_shared<Later<bool>>();
    thread_.Call([&] {
      Spawn([](Socket& socket, std::shared_ptr<Later<bool>> later) -> Task<void> {
        const bool readable = co_await socket.Readable();
        later->Set(readable);
      }(socket_, later));
    });
    return later;
  }
  std::shared_ptr<Later<bool>> Writable() {
    auto later = std::make_shared<Later<bool>>();
    thread_.Call([&] {
      Spawn([](Socket& socket, std::shared_ptr<Later<bool>> later) -> Task<void> {
        const bool writable = co_await socket.Writable();
        later->Set(writable);
      }(socket_, later));
    });
    return later;
  }
  // The result of the read: "data …", "eof" or "error N".
  std::shared_ptr<Later<std::string>> Read(size_t most) {
    auto later = std::make_shared<Later<std::string>>();
    thread_.Call([&] {
      Spawn([](Socket& socket, size_t most, std::shared_ptr<Later<std::string>> later) -> Task<void> {
        std::string room(most, '\0');
        const IoResult read = co_await socket.Read(room);
        later->Set(
            read.ok()  ? "data " + room.substr(0, static_cast<size_t>(read.bytes))
            : read.eof ? std::string("eof")
                       : "error " + std::to_string(read.error));
      }(socket_, most, later));
    });
    return later;
  }
  // Whether all was taken, and how often the socket was full. Closes it when it is full for `stall_ms`.
  std::shared_ptr<Later<std::pair<std::string, uint32_t>>> WriteAll(
      const std::vector<std::string>& pieces, int64_t stall_ms) {
    auto later = std::make_shared<Later<std::pair<std::string, uint32_t>>>();
    thread_.Call([&] {
      Spawn(
          [](SocketHarness* self, std::vector<std::string> pieces, int64_t stall_ms,
             std::shared_ptr<Later<std::pair<std::string, uint32_t>>> later) -> Task<void> {
            std::vector<iovec> vectors = Pieces(pieces);
            WriteStall stall{
                .loop = self->thread_.loop(),
                .timer = self->timer_,
                .timeout_ms = stall_ms,
                .callback = [](void* socket) { static_cast<Socket*>(socket)->Close(); },
                .context = &self->socket_};
            const WriteEnd end = co_await vllm_router::WriteAll(self->socket_, vectors, &stall);
            const std::array<const char*, 3> names = {"all", "gone", "closed"};
            later->Set({names[static_cast<size_t>(end)], stall.waits});
          }(this, pieces, stall_ms, later));
    });
    return later;
  }
  std::shared_ptr<Later<bool>> Watch() {
    auto later = std::make_shared<Later<bool>>();
    thread_.Call([&] {
      watched_ = later;
      socket_.WatchReadable(
          [](void* context) { static_cast<SocketHarness*>(context)->watched_->Set(true); }, this);
    });
    return later;
  }
  void Unwatch() {
    thread_.Call([this] { socket_.WatchReadable(nullptr, nullptr); });
  }

 private:
  LoopThread thread_;
  Timer timer_;
  Socket socket_;
  std::shared_ptr<Later<bool>> watched_;
};

// Comments to a client that is one end of a socket pair.
class KeepaliveHarness {
 public:
  KeepaliveHarness(int descriptor, std::string head, int64_t interval_ms, int64_t write_timeout_ms)
      : head_(std::move(head)), lost_(std::make_shared<Later<std::string>>()) {
    thread_.Call([&] {
      socket_ = Socket(thread_.loop(), descriptor);
      const SseKeepalive::Hooks hooks{
          .head = [](void* context) { return static_cast<KeepaliveHarness*>(context)->head_; },
          .client_lost =
              [](void* context, bool slow) {
                static_cast<KeepaliveHarness*>(context)->lost_->Set(slow ? "slow" : "gone");
              },
          .context = this};
      keepalive_.emplace(thread_.loop(), socket_, interval_ms, write_timeout_ms, hooks);
    });
  }
  ~KeepaliveHarness() {
    thread_.Call([this] {
      keepalive_.reset();
      socket_.Close();
    });
    thread_.Join();
  }
  // What is left to be written.
  py::bytes Stop() {
    return Bytes(thread_.Call([this] {
      keepalive_->Stop();
      return keepalive_->TakeUnsent();
    }));
  }
  uint32_t comments() {
    return thread_.Call([this] { return keepalive_->comments(); });
  }
  std::shared_ptr<Later<std::string>> lost() { return lost_; }

 private:
  const std::string head_;
  const std::shared_ptr<Later<std::string>> lost_;
  LoopThread thread_;
  Socket socket_;
  std::optional<SseKeepalive> keepalive_;
};

// Writes as relays do: to a socket, into a copy, or to both in the order given.
class SinkHarness {
 public:
  SinkHarness(
      int descriptor, const std::vector<std::string>& order, std::string head, bool chunked, size_t limit,
      int64_t stall_ms)
      : head_(std::move(head)), copy_(limit) {
    thread_.Call([&] {
      socket_ = Socket(thread_.loop(), descriptor);
      client_ = std::make_unique<ClientSink>(
          socket_, head_, chunked,
          WriteStall{
              .loop = thread_.loop(),
              .timer = timer_,
              .timeout_ms = stall_ms,
              .callback = [](void* socket) { static_cast<Socket*>(socket)->Close(); },
              .context = &socket_});
      for (const std::string& name : order) {
        BodySink* const sink = name == "copy" ? static_cast<BodySink*>(&copy_) : client_.get();
        if (sink_ != nullptr) both_ = std::make_unique<TeeSink>(*sink_, *sink);
        sink_ = both_ != nullptr ? both_.get() : sink;
      }
    });
  }
  ~SinkHarness() {
    thread_.Call([this] { socket_.Close(); });
    thread_.Call([] {});  // the waiter has been resumed
    thread_.Join();
  }

  static std::string NameOf(BodySink::Took took) {
    const std::array<const char*, 4> names = {"all", "not yet", "gone", "closed"};
    return names[static_cast<size_t>(took)];
  }
  std::string Write(std::string data, bool last) {
    data_ = std::move(data);
    return NameOf(thread_.Call([&] { return sink_->Write(data_, last); }));
  }
  std::shared_ptr<Later<std::string>> Flush() {
    auto later = std::make_shared<Later<std::string>>();
    thread_.Call([&] {
      Spawn([](BodySink& sink, std::shared_ptr<Later<std::string>> later) -> Task<void> {
        const BodySink::Took took = co_await sink.Flush();
        later->Set(NameOf(took));
      }(*sink_, later));
    });
    return later;
  }
  // bytes, full, whole
  py::tuple Copy() {
    thread_.Call([] {});
    return py::make_tuple(Bytes(copy_.bytes()), copy_.full(), copy_.whole());
  }
  void Close() {
    thread_.Call([this] { socket_.Close(); });
  }

 private:
  LoopThread thread_;
  Timer timer_;
  Socket socket_;
  const std::string head_;
  std::string data_;
  CapturedBody copy_;
  std::unique_ptr<ClientSink> client_;
  std::unique_ptr<TeeSink> both_;
  BodySink* sink_ = nullptr;
};

// Connects as an exchange does; errno of the attempt.
class ConnectHarness {
 public:
  ~ConnectHarness() {
    if (connector_ != nullptr) Cancel();
    thread_.Call([] {});
    thread_.Join();
  }

  std::shared_ptr<Later<int>> Connect(const std::vector<std::string>& addresses, uint16_t port) {
    std::vector<Address> parsed;
    for (const std::string& address : addresses) parsed.push_back(ParseAddress(address).value());
    auto later = std::make_shared<Later<int>>();
    thread_.Call([&] {
      connector_ = std::make_unique<Connector>(thread_.loop());
      Spawn(
          [](Connector& connector, std::vector<Address> addresses, uint16_t port,
             std::shared_ptr<Later<int>> later) -> Task<void> {
            const int error = co_await connector.ConnectToAny(std::move(addresses), port);
            later->Set(error);
          }(*connector_, std::move(parsed), port, later));
    });
    return later;
  }
  void Cancel() {
    thread_.Call([this] { connector_->Cancel(); });
  }
  bool TakesOpenSocket() {
    return thread_.Call([this] { return connector_->TakeSocket().is_open(); });
  }

 private:
  LoopThread thread_;
  std::unique_ptr<Connector> connector_;
};

// ---- resolver

class ResolverHarness {
 public:
  // `manual`: the clock stands still, and the test resolves the names.
  explicit ResolverHarness(bool manual) {
    if (!manual) {
      resolver_.emplace(thread_.loop());
      return;
    }
    resolver_.emplace(
        thread_.loop(), clock_, [this](const std::string& host, std::function<void(Resolver::Answer)> tell) {
          asked_.emplace_back(host, std::move(tell));
        });
  }

  static std::vector<std::string> Texts(const std::vector<Address>& addresses) {
    std::vector<std::string> texts;
    for (const Address& address : addresses) texts.push_back(FormatAddress(address));
    return texts;
  }
  std::optional<std::vector<std::string>> Known(const std::string& host) {
    return thread_.Call([&]() -> std::optional<std::vector<std::string>> {
      const std::optional<std::vector<Address>> known = resolver_->Known(host);
      if (!known) return std::nullopt;
      return Texts(*known);
    });
  }
  std::vector<std::string> Resolve(const std::string& host) { return Begin(host)->Get(); }

  // A waiter for a name.
  class Inquiry {
   public:
    explicit Inquiry(LoopThread& thread)
        : thread_(thread), waiter_(std::make_shared<Resolver::Waiter>(thread.loop())) {}
    std::vector<std::string> Get() {
      const Resolver::Answer resolved = later_.Get(60.0);
      if (!resolved.ok()) throw py::value_error(resolved.status().ToString());
      return Texts(*resolved);
    }
    void Cancel() {
      thread_.Call([this] { Resolver::Waiter::Cancel(waiter_); });
    }

   private:
    friend class ResolverHarness;
    LoopThread& thread_;
    const std::shared_ptr<Resolver::Waiter> waiter_;
    Later<Resolver::Answer> later_;
  };
  std::shared_ptr<Inquiry> Begin(const std::string& host) {
    auto inquiry = std::make_shared<Inquiry>(thread_);
    thread_.Call([&] {
      Spawn([](Resolver& resolver, std::string host, std::shared_ptr<Inquiry> inquiry) -> Task<void> {
        Resolver::Answer resolved = co_await resolver.Resolve(host, inquiry->waiter_);
        inquiry->later_.Set(std::move(resolved));
      }(*resolver_, host, inquiry));
    });
    return inquiry;
  }

  void Doubt(const std::string& host) {
    thread_.Call([&] { resolver_->ReportFailure(host); });
  }
  void Advance(double seconds) { clock_.Advance(static_cast<int64_t>(seconds * 1e9)); }
  // The lookups without a result.
  std::vector<std::string> Asked() {
    return thread_.Call([this] {
      std::vector<std::string> hosts;
      for (const auto& [host, tell] : asked_) hosts.push_back(host);
      return hosts;
    });
  }
  // Completes the oldest lookup; no addresses: there are none.
  void Tell(const std::vector<std::string>& addresses) {
    thread_.Call([&] {
      std::vector<Address> found;
      for (const std::string& address : addresses) found.push_back(*ParseAddress(address));
      const auto tell = std::move(asked_.front().second);
      asked_.pop_front();
      if (found.empty()) {
        tell(absl::UnavailableError("nobody knows"));
      } else {
        tell(std::move(found));
      }
    });
  }

 private:
  ManualClock clock_;
  std::deque<std::pair<std::string, std::function<void(Resolver::Answer)>>> asked_;
  LoopThread thread_;
  std::optional<Resolver> resolver_;
};

// ---- listener

// Accepts, records the clients, and keeps the connections until told otherwise.
class ListenerHarness {
 public:
  ListenerHarness(const std::string& host, uint16_t port, bool share_port, bool join) {
    StatusOr<std::unique_ptr<Listener>> opened = Listener::Open(
        thread_.loop(), {.host = host, .port = port, .share_port = share_port, .join = join},
        [this](Socket socket, Endpoint peer) {
          accepted_.push_back(std::move(socket));
          peers_.emplace_back(peer.address, peer.port);
        });
    if (!opened.ok()) throw py::value_error(opened.status().ToString());
    listener_ = *std::move(opened);
  }
  ~ListenerHarness() {
    thread_.Call([this] {
      listener_.reset();
      accepted_.clear();
    });
    thread_.Call([] {});
    thread_.Join();
  }

  uint16_t port() const { return listener_->port(); }
  void Start() {
    thread_.Call([this] { listener_->Start(); });
  }
  void Stop() {
    thread_.Call([this] { listener_->Stop(); });
  }
  std::vector<std::pair<std::string, uint16_t>> Peers() {
    return thread_.Call([this] { return peers_; });
  }

 private:
  LoopThread thread_;
  std::unique_ptr<Listener> listener_;
  std::vector<Socket> accepted_;
  std::vector<std::pair<std::string, uint16_t>> peers_;
};

}  // namespace

void BindTestingNet(py::module_& testing) {
  testing.def("frame_pool_addresses", &FramePoolAddresses);
  testing.def("frame_pool_across_threads", &FramePoolAcrossThreads);
  testing.def("frame_pool_limits", [] {
    return std::map<std::string, size_t>{
        {"largest", FramePool::kLargest}, {"most_spare", FramePool::kMostSpare}};
  });

  py::class_<ReadySetHarness>(testing, "ReadySet")
      .def(py::init())
      .def("add", &ReadySetHarness::Add, py::arg("sent_before") = "")
      .def("send", &ReadySetHarness::Send)
      .def("end", &ReadySetHarness::End)
      .def("await_writable", &ReadySetHarness::AwaitWritable)
      .def("duplicate", &ReadySetHarness::Duplicate)
      .def("remove", &ReadySetHarness::RemoveNow)
      .def("remove_when_told", &ReadySetHarness::RemoveWhenTold)
      .def("alive", &ReadySetHarness::alive)
      .def("turn", &ReadySetHarness::Turn);
  testing.def("ready_set_without_descriptors", &ReadySetWithoutDescriptors);

  BindLater<bool>(testing, "LaterBool");
  BindLater<int>(testing, "LaterInt");
  BindLater<double>(testing, "LaterFloat");
  BindLater<std::string>(testing, "LaterText");
  BindLater<std::pair<std::string, uint32_t>>(testing, "LaterWrite");

  py::class_<BufferHarness>(testing, "Buffer")
      .def(py::init())
      .def("append", &BufferHarness::Append)
      .def("receive", &BufferHarness::Receive)
      .def("consume", [](BufferHarness& self, size_t bytes) { self.buffer().Consume(bytes); })
      .def("reserve", [](BufferHarness& self, size_t bytes) { self.buffer().Reserve(bytes); })
      .def("clear", [](BufferHarness& self) { self.buffer().Clear(); })
      .def("release", [](BufferHarness& self) { self.buffer().Release(); })
      .def("move", &BufferHarness::Move)
      .def("padding_sum", &BufferHarness::PaddingSum)
      .def_property_readonly("view", [](BufferHarness& self) { return Bytes(self.buffer().view()); })
      .def_property_readonly("room", [](BufferHarness& self) { return self.buffer().room().size(); })
      .def_property_readonly("capacity", [](BufferHarness& self) { return self.buffer().capacity(); })
      .def_property_readonly(
          "pool_bytes_in_use", [](BufferHarness& self) { return self.pool().bytes_in_use(); });
  testing.def("pool_round", [](const std::vector<size_t>& sizes) {
    // Takes blocks of these sizes, gives them all back, takes them again; returns how many came back
    // from the pool.
    BufferPool pool;
    std::vector<BufferPool::Block> blocks;
    for (const size_t size : sizes) blocks.push_back(pool.Acquire(size));
    std::set<const char*> addresses;
    for (const BufferPool::Block& block : blocks) addresses.insert(block.data);
    std::vector<size_t> capacities;
    for (const BufferPool::Block& block : blocks) {
      capacities.push_back(block.capacity);
      pool.Release(block);
    }
    const size_t in_use = pool.bytes_in_use();
    size_t again = 0;
    blocks.clear();
    for (const size_t size : sizes) {
      blocks.push_back(pool.Acquire(size));
      again += addresses.contains(blocks.back().data) ? 1 : 0;
    }
    for (const BufferPool::Block& block : blocks) pool.Release(block);
    return py::make_tuple(capacities, in_use, again);
  });

  py::class_<WheelHarness>(testing, "TimerWheel")
      .def(py::init<int64_t>(), py::arg("now_ms") = 0)
      .def("arm", &WheelHarness::Arm)
      .def("disarm", &WheelHarness::Disarm)
      .def("drop", &WheelHarness::Drop)
      .def("drop_wheel", &WheelHarness::DropWheel)
      .def("is_armed", &WheelHarness::IsArmed)
      .def(
          "when_fired", &WheelHarness::WhenFired, py::arg("name"), py::arg("what"), py::arg("other"),
          py::arg("delay_ms") = 0)
      .def("tick", &WheelHarness::Tick, py::arg("pass_ms"))
      .def("take_fired", &WheelHarness::TakeFired)
      .def_property_readonly("armed", &WheelHarness::armed)
      .def_property_readonly("wakes", &WheelHarness::wakes)
      .def_property_readonly("now_ms", &WheelHarness::now_ms);

  testing.def("run_deep_tasks", &RunDeep);
  testing.def("signal_story", &SignalStory, py::arg("notify_first"), py::arg("notifications") = 1);
  testing.def("destroyed_locals", &DestroyedLocals, py::arg("run"));

  py::class_<LoopHarness>(testing, "EventLoop")
      .def(py::init())
      .def("posted_order", &LoopHarness::PostedOrder)
      .def("yields", &LoopHarness::Yields)
      .def("start_delay", &LoopHarness::StartDelay)
      .def("cancel_delay", &LoopHarness::CancelDelay)
      .def("start_timer", &LoopHarness::StartTimer);

  py::class_<SocketHarness>(testing, "Socket")
      .def(py::init<int>(), py::arg("descriptor"))
      .def("try_read", &SocketHarness::TryRead)
      .def("try_write", &SocketHarness::TryWrite)
      .def("is_broken", &SocketHarness::IsBroken)
      .def("has_unread", &SocketHarness::HasUnread)
      .def_property_readonly("is_open", &SocketHarness::is_open)
      .def("close", &SocketHarness::Close)
      .def("abort", &SocketHarness::Abort)
      .def("shutdown_write", &SocketHarness::ShutdownWrite)
      .def("interrupt_read", &SocketHarness::InterruptRead)
      .def("turn", &SocketHarness::Turn)
      .def("readable", &SocketHarness::Readable)
      .def("writable", &SocketHarness::Writable)
      .def("read", &SocketHarness::Read)
      .def("write_all", &SocketHarness::WriteAll, py::arg("pieces"), py::arg("stall_ms") = 0)
      .def("watch", &SocketHarness::Watch)
      .def("unwatch", &SocketHarness::Unwatch);
  testing.def("skip_written", [](const std::vector<std::string>& pieces, size_t written) {
    std::vector<iovec> vectors = Pieces(pieces);
    std::vector<std::string> left;
    for (const iovec& rest : SkipWritten(vectors, written)) {
      left.emplace_back(static_cast<const char*>(rest.iov_base), rest.iov_len);
    }
    return left;
  });
  py::class_<KeepaliveHarness>(testing, "SseKeepalive")
      .def(
          py::init<int, std::string, int64_t, int64_t>(), py::arg("descriptor"), py::arg("head"),
          py::arg("interval_ms"), py::arg("write_timeout_ms") = 0)
      .def("stop", &KeepaliveHarness::Stop)
      .def_property_readonly("comments", &KeepaliveHarness::comments)
      .def_property_readonly("lost", &KeepaliveHarness::lost);
  py::class_<SinkHarness>(testing, "BodySink")
      .def(
          py::init<int, const std::vector<std::string>&, std::string, bool, size_t, int64_t>(),
          py::arg("descriptor"), py::arg("order") = std::vector<std::string>{"client"}, py::arg("head") = "",
          py::arg("chunked") = false, py::arg("limit") = 1 << 20, py::arg("stall_ms") = 0)
      .def("write", &SinkHarness::Write, py::arg("data"), py::arg("last") = false)
      .def("flush", &SinkHarness::Flush)
      .def("close", &SinkHarness::Close)
      .def_property_readonly("copy", &SinkHarness::Copy);
  py::class_<ConnectHarness>(testing, "Connector")
      .def(py::init())
      .def("connect", &ConnectHarness::Connect)
      .def("cancel", &ConnectHarness::Cancel)
      .def("takes_open_socket", &ConnectHarness::TakesOpenSocket);
  testing.def("parse_address", [](const std::string& text) -> std::optional<std::string> {
    const std::optional<Address> address = ParseAddress(text);
    if (!address) return std::nullopt;
    return FormatAddress(*address);
  });

  py::class_<ResolverHarness>(testing, "Resolver")
      .def(py::init<bool>(), py::arg("manual") = false)
      .def("known", &ResolverHarness::Known)
      .def("resolve", &ResolverHarness::Resolve)
      .def("begin", &ResolverHarness::Begin, py::keep_alive<0, 1>())
      .def("doubt", &ResolverHarness::Doubt)
      .def("advance", &ResolverHarness::Advance)
      .def_property_readonly("asked", &ResolverHarness::Asked)
      .def("tell", &ResolverHarness::Tell);
  py::class_<ResolverHarness::Inquiry, std::shared_ptr<ResolverHarness::Inquiry>>(testing, "Inquiry")
      .def("get", &ResolverHarness::Inquiry::Get)
      .def("cancel", &ResolverHarness::Inquiry::Cancel);

  py::class_<ListenerHarness>(testing, "Listener")
      .def(
          py::init<const std::string&, uint16_t, bool, bool>(), py::arg("host") = "127.0.0.1",
          py::arg("port") = 0, py::arg("share_port") = true, py::arg("join") = false)
      .def_property_readonly("port", &ListenerHarness::port)
      .def("start", &ListenerHarness::Start)
      .def("stop", &ListenerHarness::Stop)
      .def("peers", &ListenerHarness::Peers);
}

}  // namespace vllm_router
