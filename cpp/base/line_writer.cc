#include "base/line_writer.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <system_error>
#include <utility>

#include "base/limits.h"
#include "base/mutex.h"

namespace vllm_router {
namespace {

constexpr int64_t kCloseMs = 2'000;

}  // namespace

struct LineWriter::State {
  State(Sink sink, Notice notice) : sink(std::move(sink)), notice(std::move(notice)) {}

  const Sink sink;
  const Notice notice;
  std::atomic<uint64_t> numbered{0};
  std::atomic<uint64_t> dropped{0};
  mutable Mutex mutex;  // leaf
  mutable std::condition_variable changed;
  std::thread thread ABSL_GUARDED_BY(mutex);
  std::string waiting ABSL_GUARDED_BY(mutex);
  uint64_t dropped_in_a_row ABSL_GUARDED_BY(mutex) = 0;  // since the sink was called
  bool woken ABSL_GUARDED_BY(mutex) = false;
  bool writing ABSL_GUARDED_BY(mutex) = false;
  bool closing ABSL_GUARDED_BY(mutex) = false;
  bool ended ABSL_GUARDED_BY(mutex) = false;
};

LineWriter::LineWriter(Sink sink, Notice notice)
    : state_(std::make_shared<State>(std::move(sink), std::move(notice))) {}

LineWriter::~LineWriter() { Close(); }

uint64_t LineWriter::NextNumber() { return state_->numbered.fetch_add(1, std::memory_order_relaxed) + 1; }

// Starts the thread, unless that has happened; what waits stays if the system has no thread for it now.
void LineWriter::WakeLocked(const std::shared_ptr<State>& state) ABSL_NO_THREAD_SAFETY_ANALYSIS {
  if (!state->thread.joinable()) {
    // Handlers belong to the threads of the program, and a broken pipe is an error like others.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
      state->thread = std::thread([state] { Run(*state); });
    } catch (const std::system_error&) {  // the next line tries again
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  state->changed.notify_all();
}

bool LineWriter::Take(std::string* lines) {
  MutexLock lock(state_->mutex);
  if (state_->waiting.size() + lines->size() > kMaxAccessLogBytes && !state_->waiting.empty()) return false;
  state_->waiting.append(*lines);
  lines->clear();
  WakeLocked(state_);
  return true;
}

void LineWriter::Put(std::string_view lines) {
  if (lines.empty()) return;
  MutexLock lock(state_->mutex);
  // One line behind a gap must not stand before the notice of it.
  const bool has_room =
      state_->waiting.empty() || state_->waiting.size() + lines.size() <= kMaxAccessLogBytes;
  if (state_->closing || state_->dropped_in_a_row > 0 || !has_room) {
    const uint64_t count = CountLines(lines);
    state_->dropped_in_a_row += count;
    state_->dropped.fetch_add(count, std::memory_order_relaxed);
    return;
  }
  state_->waiting.append(lines);
  WakeLocked(state_);
}

uint64_t LineWriter::dropped() const { return state_->dropped.load(std::memory_order_relaxed); }

void LineWriter::Wake() {
  MutexLock lock(state_->mutex);
  if (state_->closing) return;
  state_->woken = true;
  WakeLocked(state_);
}

bool LineWriter::WaitUntilWritten(int64_t timeout_ms) const {
  MutexLock lock(state_->mutex);
  return state_->changed.wait_for(
      lock.native(), std::chrono::milliseconds(timeout_ms),
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) {
        return state_->waiting.empty() && !state_->writing && !state_->woken;
      });
}

bool LineWriter::Close() {
  MutexLock lock(state_->mutex);
  state_->closing = true;
  std::thread thread = std::move(state_->thread);
  if (!thread.joinable()) return true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(
      lock.native(), std::chrono::milliseconds(kCloseMs),
      [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state_->mutex) { return state_->ended; });
  lock.Unlock();
  if (ended) {
    thread.join();
  } else {
    thread.detach();
  }
  return ended;
}

void LineWriter::Run(State& state) {
  std::string lines;
  MutexLock lock(state.mutex);
  for (;;) {
    state.changed.wait(lock.native(), [&state]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(state.mutex) {
      return state.closing || state.woken || !state.waiting.empty();
    });
    if (state.waiting.empty() && !state.woken) break;
    lines.swap(state.waiting);
    const uint64_t dropped = std::exchange(state.dropped_in_a_row, 0);
    state.woken = false;
    state.writing = true;
    lock.Unlock();
    if (dropped > 0 && state.notice) lines += state.notice(dropped);
    state.sink(lines);
    lines.clear();
    lock.Lock();
    state.writing = false;
    state.changed.notify_all();
  }
  state.ended = true;
  state.changed.notify_all();
}

uint64_t CountLines(std::string_view text) {
  return static_cast<uint64_t>(std::count(text.begin(), text.end(), '\n')) +
         (text.empty() || text.back() == '\n' ? 0 : 1);
}

}  // namespace vllm_router
