// UpstreamResponse: the response of an attempt as it arrives from the worker (AWAIT), read up to the point from which
// another takes over: its head for a relay, or all of it for who needs it whole.
//
//   const UpstreamResponse::Awaited awaited = co_await response.AwaitHead(message, settings);
//   kHead -> head(), in(): the head, and what came behind it; the rest comes from the connection
//   rest = co_await response.ReadWhole(…);   or ReadMore(), TakeWhole()
//
// Informational heads are dropped. A head that promises nothing yet is held until a byte of the body comes
// (docs/explanation/failures.md). Belongs to one attempt. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "http/head_parser.h"
#include "net/buffer.h"
#include "net/task.h"
#include "proxy/exchange/attempt_connection.h"
#include "proxy/exchange/attempt_record.h"
#include "proxy/exchange/upstream_message.h"
#include "proxy/exchange/upstream_sender.h"

namespace vllm_router {

class BodyClaim;
struct IoThread;
struct Settings;

class UpstreamResponse {
 public:
  enum class Awaited : uint8_t { kHead, kEnded, kBad };
  enum class Rest : uint8_t { kWhole, kTooLong, kBrokeOff, kTimeout, kNoMemory };
  struct Whole {
    std::string bytes = {};  // as they came, the head included; empty if only the body was wanted
    std::string body = {};   // without its framing
  };

  // All must outlive it.
  UpstreamResponse(
      IoThread& thread, AttemptConnection& connection, UpstreamSender& sender, AttemptRecord& record)
      : thread_(thread), connection_(connection), sender_(sender), record_(record) {}
  ~UpstreamResponse() { ForgetHead(); }
  UpstreamResponse(const UpstreamResponse&) = delete;
  UpstreamResponse& operator=(const UpstreamResponse&) = delete;

  // To this message, on the connection, which is leased; again from another one. Both outlive the wait, whose limit is
  // that of the first byte.
  Task<Awaited> AwaitHead(const UpstreamMessage& message, const Settings& settings);
  // Whether bytes of a response have come, read or not.
  bool HasArrived() const { return has_come_ || connection_.HasUnread(); }
  bool has_come() const { return has_come_; }  // read, be it of an informational head

  // After kHead.
  const ResponseHead& head() const { return parser_->head(); }
  Buffer& in() { return *in_; }
  // Whether a byte of the body, or its end, is behind the head.
  bool HasBodyByte() const;
  // Frees what only the head needed.
  void ForgetHead();

  // Waits for the whole response and returns the connection to the pool. head() stays; in() is as before.
  // kNoMemory: beyond kSmallBodyBytes its bytes are held by `memory`, which may be null.
  Task<Rest> ReadWhole(
      size_t most, int64_t timeout_ms, bool keep_bytes, Whole* whole, BodyClaim* memory = nullptr);
  // Waits for more behind in(). False: the connection ended, or nothing came within the time; it stays open then.
  Task<bool> ReadMore(int64_t timeout_ms);
  // Takes the whole of a response that is not for the client, head and body as they came, and returns
  // the connection to the pool. Empty if it is too long or has not come whole; the connection is then
  // closed.
  std::optional<std::string> TakeWhole();

 private:
  IoThread& thread_;
  AttemptConnection& connection_;
  UpstreamSender& sender_;
  AttemptRecord& record_;
  std::unique_ptr<ResponseHeadParser> parser_;
  std::optional<Buffer> in_;
  bool has_come_ = false;
};

}  // namespace vllm_router
