#include "proxy/telemetry/line_writer.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <utility>

#include "base/limits.h"
#include "base/mutex.h"

namespace vllm_router {
namespace {

constexpr int64_t kCloseMs = 2'000;

}  // namespace

struct LineWriter::State {
  explicit State(Sink sink) : sink(std::move(sink)) {}

  const Sink sink;
  std::atomic<uint64_t> numbered{0};
  mutable Mutex mutex;  // leaf
  mutable std::condition_variable changed;
  std::string waiting ABSL_GUARDED_BY(mutex);
  bool writing ABSL_GUARDED_BY(mutex) = false;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

LineWriter::LineWriter(Sink sink)
    : state_(std::make_shared<State>(std::move(sink))), thread_([state = state_] { Run(*state); }) {}

LineWriter::~LineWriter() { Close(); }

uint64_t LineWriter::NextNumber() { return state_->numbered.fetch_add(1, std::memory_order_relaxed) + 1; }

bool LineWriter::Take(std::string* lines) {
  MutexLock lock(state_->mutex);
  if (state_->waiting.size() + lines->size() > kMaxAccessLogBytes && !state_->waiting.empty()) return false;
  state_->waiting.append(*lines);
  lines->clear();
  state_->changed.notify_all();
  return true;
}

bool LineWriter::WaitUntilWritten(int64_t timeout_ms) const {
  MutexLock lock(state_->mutex);
  return state_->changed.wait_for(
      lock.native(), std::chrono::milliseconds(timeout_ms),
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
        return state_->waiting.empty() && !state_->writing;
      });
}

void LineWriter::Close() {
  if (!thread_.joinable()) return;
  bool ended = false;
  {
    MutexLock lock(state_->mutex);
    state_->closing = true;
    state_->changed.notify_all();
    ended = state_->changed.wait_for(
        lock.native(), std::chrono::milliseconds(kCloseMs),
        [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) { return state_->ended; });
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void LineWriter::Run(State& state) {
  std::string lines;
  MutexLock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock.native(), [&state]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) {
      return state.closing || !state.waiting.empty();
    });
    if (state.waiting.empty()) break;
    lines.swap(state.waiting);
    state.writing = true;
    lock.Unlock();
    state.sink(lines);
    lines.clear();
    lock.Lock();
    state.writing = false;
    state.changed.notify_all();
  }
  state.ended = true;
  state.changed.notify_all();
}

}  // namespace vllm_router
