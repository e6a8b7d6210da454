// ContinuationSink: a stream on its way to the client that may go on with another run of its request.
//
//   Relay ─▶ EventGate ──────────────────────────▶ next, the client's      the first run
//                └─▶ DeliveredText
//   Relay ─▶ EventGate ─▶ RerunVerifier ─────────▶ next                    after Rerun(), or Rest()
//                               └─▶ DeliveredText
//
// Where token ids are noted, a TokenStream has each event behind the gate, and what follows gets what it makes of it.
//
// The client gets whole events (continuation/event_gate.h), and a worker's failure only if nothing follows it:
//
//   relay's end, or ending()  ─▶ Rerun()    bytes of the new run come: what the client has of them is verified and dropped
//                             ─▶ Rest()     bytes come of a request whose prompt is what there was: they follow
//                             ─▶ Release()  what was held goes on: the client sees how the stream ended
//
// A run that differs, or is unfit(), ends its relay: Write() returns kClosed, and problem() says why. Events of another shape than those of
// completions and chat completions end may_continue(), and then all bytes pass as they come.
//
// While a client waits for a second run it may be sent comments, which every reader of event streams skips: WriteComment().
// What the client does not take of one at once is in front of the next piece.
//
// The hooks are called within Write(), before the bytes go on. Cost: that of what it is made of
// (benchmarks/micro/continuation.cc); of a first run, events that repeat the one before but for their text
// (continuation/repeated_event.h) pass by without the gate, as they lie. One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "continuation/delivered_text.h"
#include "continuation/event_gate.h"
#include "continuation/rerun_verifier.h"
#include "continuation/token_stream.h"
#include "proxy/exchange/body_sink.h"

namespace vllm_router {

class ContinuationSink final : public BodySink {
 public:
  // Of a second run; each may be null and is called with `context`, once for each run.
  struct Hooks {
    void (*first_event)(void* context) = nullptr;
    void (*caught_up)(void* context) = nullptr;
    void (*ending)(void* context) = nullptr;  // of any run: ending() is not kNone any more
    void* context = nullptr;
  };

  // `next` and `tokens` outlive it. `tokens`: notes the ids of the stream; null: it has none.
  ContinuationSink(BodySink& next, const Hooks& hooks, TokenStream* tokens = nullptr)
      : next_(next),
        hooks_(hooks),
        tokens_(tokens),
        gate_(NewGate()),
        delivered_(tokens != nullptr ? &tokens->tail() : nullptr) {}

  Took Write(std::string_view data, bool last) override;
  Task<Took> Flush() override;

  // The bytes that follow are of a second run, or of another one after that; what was held is dropped. REQUIRES:
  // may_continue().
  void Rerun();
  // The same for a request that goes on behind the first ids of the output. `repeated`: the end of what the client has,
  // which is behind their text. REQUIRES: the stream's tokens are known.
  void Rest(size_t ids, std::string_view repeated);
  // The stream does not go on. What was held goes to the client; `last`: as the end of the body. Nothing is held, and
  // that is not the end: kAll.
  Took Release(bool last);
  // What is missing of the stream, as the end of the body; what was held is dropped.
  Took WriteEnd(std::string_view events);

  // Behind whole events. nullopt: something else waits for the client, or the stream does not go on.
  std::optional<Took> WriteComment();

  // What the client has is known, and not the end of the stream.
  bool may_continue() const { return !passes_all_ && delivered_.ok() && !delivered_.done(); }
  const DeliveredText& delivered() const { return delivered_; }
  EventGate::Ending ending() const { return gate_.ending(); }
  // The prompt of the rest is not what there was.
  bool unfit() const { return tokens_ != nullptr && tokens_->unfit(); }
  RerunProblem problem() const { return verifier_ ? verifier_->problem() : RerunProblem::kNone; }
  uint64_t bytes() const { return bytes_; }  // that went on, over all runs
  uint64_t dropped_bytes() const { return verifier_ ? verifier_->dropped_bytes() : 0; }

 private:
  Took WriteFirstRun(std::string_view data, bool last);
  Took WriteWithIds(std::string_view data, bool last);
  Took WriteRerun(std::string_view data, bool last);
  void TakeWithIds(std::string_view events);
  void BeginRun();
  EventGate NewGate() const;
  std::string_view Read(std::string_view data);
  Took Pass(std::string_view data, bool last);
  Took Forward(std::string_view data, bool last);

  // Of what was written, `next` has yet to take.
  enum class Waits : uint8_t { kNothing, kPiece, kComment, kPieceBehindComment };

  BodySink& next_;
  const Hooks hooks_;
  TokenStream* const tokens_;
  EventGate gate_;
  DeliveredText delivered_;
  std::optional<RerunVerifier> verifier_;
  std::string out_;
  std::string_view piece_;  // that is behind a comment
  uint64_t bytes_ = 0;
  Waits waits_ = Waits::kNothing;
  bool last_ = false;        // piece_ is
  bool started_ = false;     // the next one has the first piece, which the head goes with
  bool passes_all_ = false;  // the first run is not understood
  bool has_event_ = false;   // of this run
  bool caught_up_ = false;
};

}  // namespace vllm_router
