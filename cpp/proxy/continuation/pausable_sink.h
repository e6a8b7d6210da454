// PausableSink: lets pieces pass to another sink, keeps one waiting while it is paused, and ends a relay when it is closed.
//
//   Relay ─▶ PausableSink ─▶ ContinuationSink      open
//   Relay ─▶ PausableSink                          Pause(): the next piece waits, and the relay with it
//   Relay ─▶ PausableSink ─▶ ContinuationSink      Open(): it goes on, and so does all behind it
//            PausableSink ─▶ kClosed               Close(), or the scope is cancelled: it is dropped
//
// So a worker's stream stands still between two pieces, and nothing of it is lost if it goes on. Cost: a virtual call per
// piece. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "net/event_loop.h"
#include "proxy/client/cancel_scope.h"
#include "proxy/exchange/body_sink.h"

namespace vllm_router {

class PausableSink final : public BodySink {
 public:
  // Called with `context` before a piece with bytes passes or waits.
  struct Hook {
    void (*spoke)(void* context);
    void* context;
  };

  // All outlive it.
  PausableSink(EventLoop& loop, CancelScope& scope, BodySink& next, const Hook& hook)
      : scope_(scope), next_(next), hook_(hook), pause_(loop) {}

  Took Write(std::string_view data, bool last) override;
  Task<Took> Flush() override;

  // A piece on its way to the next sink goes on.
  void Pause() { state_ = State::kPaused; }
  void Open() { Enter(State::kOpen); }
  void Close() { Enter(State::kClosed); }
  // The next sink has yet to take a piece.
  bool waits() const { return waits_; }

 private:
  enum class State : uint8_t { kOpen, kPaused, kClosed };
  struct Piece {
    std::string_view data;
    bool last;
  };

  void Enter(State state);

  CancelScope& scope_;
  BodySink& next_;
  const Hook hook_;
  Delay pause_;
  std::optional<Piece> held_;
  State state_ = State::kOpen;
  bool waits_ = false;
};

}  // namespace vllm_router
