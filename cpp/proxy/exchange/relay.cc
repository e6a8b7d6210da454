#include "proxy/exchange/relay.h"

#include <algorithm>

#include "base/clock.h"
#include "base/limits.h"
#include "http/dechunk.h"

namespace vllm_router {

Task<Relay::End> Relay::Run(Buffer& in, BodyReader& reader) {
  bool worker_closed = false;
  for (;;) {
    co_await loop_.TurnEnd();
    const Dechunked part = Dechunk(reader, {in.data(), in.size()});
    const bool ended = !part.bad && (reader.ended() || (worker_closed && reader.EndOfConnection()));

    if (bytes_ == 0 && !part.data.empty()) hooks_.first_byte(hooks_.context);
    if (!client_left_ && (!started_ || ended || !part.data.empty())) {
      BodySink::Took took = sink_.Write(part.data, ended);
      waiting_ = took == BodySink::Took::kNotYet;
      started_ = started_ || waiting_ || took == BodySink::Took::kAll;
      if (waiting_) {
        ++stalls_;
        took = co_await sink_.Flush();
        waiting_ = false;
      }
      if (took == BodySink::Took::kGone && client_has_all()) {
        client_left_ = true;
        hooks_.client_left(hooks_.context);
      } else if (took != BodySink::Took::kAll) {
        co_return took == BodySink::Took::kGone ? End::kClientGone : End::kClosed;
      }
    }
    (client_left_ ? rest_ : bytes_) += part.data.size();
    if (rest_ > kMostRest) co_return End::kClosed;
    tail_.Add(part.data);

    const bool brimful = in.room().empty();
    in.Consume(part.used);
    if (part.bad) co_return End::kBadFraming;
    if (ended) co_return End::kDone;
    if (worker_closed) co_return End::kWorkerGone;

    // Most streams are small events and stay in the first block; a read that fills its block enlarges it.
    in.Reserve(brimful ? std::min(in.capacity() * 4, kRelayBufferMost) : kRelayBufferFirst);
    idle_timer_.Arm(loop_.timers(), idle_ms_, hooks_.worker_idle, hooks_.context);
    const IoResult read = co_await worker_.Read(in.room());
    idle_timer_.Disarm();
    if (read.ok()) {
      in.Commit(static_cast<size_t>(read.bytes));
      if (hooks_.progress != nullptr) hooks_.progress->Touch(SteadyClock().NowNanos());
    } else if (read.eof) {
      worker_closed = true;
    } else {
      co_return worker_.is_open() ? End::kWorkerGone : End::kClosed;
    }
  }
}

}  // namespace vllm_router
