#include "proxy/continuation/pausable_sink.h"

#include <utility>

#include "base/time_units.h"

namespace vllm_router {
namespace {

constexpr int64_t kLongNs = 3600 * kNanosPerSecond;  // what pauses a stream ends the pause

}  // namespace

BodySink::Took PausableSink::Write(std::string_view data, bool last) {
  if (state_ == State::kClosed) return Took::kClosed;
  if (!data.empty()) hook_.spoke(hook_.context);
  if (state_ == State::kClosed) return Took::kClosed;
  if (state_ == State::kPaused) {
    held_ = {.data = data, .last = last};
    return Took::kNotYet;
  }
  const Took took = next_.Write(data, last);
  waits_ = took == Took::kNotYet;
  return took;
}

Task<BodySink::Took> PausableSink::Flush() {
  if (held_) {
    {
      const OnCancel wake(scope_, [this] { pause_.Cancel(); });
      while (state_ == State::kPaused && !scope_.cancelled()) co_await pause_.For(kLongNs);
    }
    const Piece piece = *std::exchange(held_, std::nullopt);
    if (state_ != State::kOpen) co_return Took::kClosed;
    const Took took = next_.Write(piece.data, piece.last);
    if (took != Took::kNotYet) co_return took;
  }
  waits_ = true;
  const Took took = co_await next_.Flush();
  waits_ = false;
  co_return took;
}

void PausableSink::Enter(State state) {
  state_ = state;
  pause_.Cancel();
}

}  // namespace vllm_router
