#include "proxy/response_cache/found_response.h"

#include <algorithm>
#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "base/time_units.h"
#include "proxy/client/cancel_scope.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

constexpr size_t kReplayPiece = 64 << 10;
constexpr int64_t kReplayStepNs = 100 * kNanosPerMs;

// How many bytes of the stream its next events are.
size_t SizeOfEvents(std::string_view stream, uint32_t events) {
  for (size_t at = stream.find('\n'); at != std::string_view::npos; at = stream.find('\n', at + 1)) {
    const std::string_view rest = stream.substr(at + 1);
    const size_t blank = rest.starts_with("\n") ? 1 : rest.starts_with("\r\n") ? 2 : 0;
    if (blank == 0) continue;
    at += blank;
    if (--events == 0) return at + 1;
  }
  return stream.size();
}

}  // namespace

FoundResponse::~FoundResponse() { thread_.response_parsers.Release(std::move(parser_)); }

// What Redis has may be anybody's, so it has to be a response as a whole before anything of it is used.
FoundResponse::Taken FoundResponse::Take(
    const CacheKey& key, std::shared_ptr<const std::string> blob, bool wants_stream) {
  const StatusOr<StoredResponse> stored =
      DecodeStored(key, *blob, cache_.integrity_key(), UnixMicros() / 1000);
  if (!stored.ok() && absl::IsNotFound(stored.status())) return Taken::kUnfit;
  if (!stored.ok() || !ReadHead(*stored)) return Taken::kCorrupt;
  const bool is_stream = stored->kind == StoredResponse::Kind::kEventStream;
  if (is_stream != wants_stream) return Taken::kUnfit;
  const int64_t now_ms = UnixMicros() / 1000;  // another router's clock may be ahead
  age_ = std::to_string((now_ms - std::clamp<int64_t>(stored->stored_at_ms, 0, now_ms)) / 1000);
  stored_ = *stored;
  blob_ = std::move(blob);
  if (Hold(key)) return Taken::kTaken;
  blob_ = nullptr;
  return Taken::kNoMemory;
}

// What is longer than a piece may be held for as long as its client takes to read it.
bool FoundResponse::Hold(const CacheKey& key) {
  if (blob_->size() <= kReplayPiece) return true;
  hold_ = cache_.Hold(key, blob_, thread_.limits.body_memory);
  if (hold_ == nullptr) return false;
  const std::shared_ptr<const std::string> mine = std::exchange(blob_, hold_->blob());
  const auto same = [&](std::string_view part) {
    return std::string_view(*blob_).substr(static_cast<size_t>(part.data() - mine->data()), part.size());
  };
  stored_.fields = same(stored_.fields);
  stored_.body = same(stored_.body);
  return true;
}

// Its header lines frame nothing, and end where they say.
bool FoundResponse::ReadHead(const StoredResponse& stored) {
  head_text_ =
      Concat("HTTP/1.1 200 OK\r\n", stored.fields, "Content-Length: ", stored.body.size(), "\r\n\r\n");
  if (parser_ == nullptr) parser_ = thread_.response_parsers.Acquire();
  parser_->Reset(/*to_head=*/false);
  return parser_->Feed(head_text_) == ParseState::kDone && head().size == head_text_.size() &&
         head().status == 200 && head().framing == BodyFraming::kLength &&
         head().content_length == stored.body.size();
}

Task<BodySink::Took> FoundResponse::Replay(BodySink& client, CancelScope& scope, uint32_t events_per_second) {
  const uint32_t rate = events_per_second;
  const bool is_stream = stored_.kind == StoredResponse::Kind::kEventStream;
  const int64_t pause_ns = rate == 0 ? 0 : std::max(kReplayStepNs, kNanosPerSecond / rate);
  const auto events = static_cast<uint32_t>(rate * pause_ns / kNanosPerSecond);
  for (std::string_view rest = stored_.body;;) {
    const size_t most = rate != 0   ? SizeOfEvents(rest, std::max(events, 1U))
                        : is_stream ? kReplayPiece
                                    : rest.size();
    const std::string_view piece = rest.substr(0, most);
    rest.remove_prefix(piece.size());
    BodySink::Took took = client.Write(piece, rest.empty());
    if (took == BodySink::Took::kNotYet) took = co_await client.Flush();
    if (took != BodySink::Took::kAll) co_return took;
    replayed_ += piece.size();
    if (rest.empty()) co_return took;
    if (rate == 0) {
      co_await thread_.loop.Yield();
      continue;
    }
    const bool goes_on = co_await scope.Pause(thread_.loop, pause_ns);
    if (!goes_on) co_return BodySink::Took::kClosed;
  }
}

}  // namespace vllm_router
