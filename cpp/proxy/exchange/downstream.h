// Downstream: the client's side of one exchange: every response to it is written here, except the body of a worker's
// (relay.h).
//
//   Reply(), ReplyError(), Reject()   the router's own responses; has_bytes() from then on
//   HeadFor()                         the head of a worker's response
//   watch()                           what the client does meanwhile (client_watch.h)
//   Cut()                             ends a response that broke off so that it cannot pass for a whole one
//
// Once has_bytes(), no other response is possible. Belongs to one Exchange. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "http/head.h"
#include "net/task.h"
#include "net/write_all.h"
#include "proxy/api/error_response.h"
#include "proxy/exchange/client_watch.h"
#include "proxy/exchange/request_body.h"
#include "proxy/exchange/sse_keepalive.h"

namespace vllm_router {

class Relay;
struct AdminReply;

// Workers get requests with other methods as well; these are the ones to name.
inline constexpr std::string_view kForwardedMethods = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";

class Downstream {
 public:
  explicit Downstream(Request& request) : request_(request), watch_(request) {}
  Downstream(const Downstream&) = delete;
  Downstream& operator=(const Downstream&) = delete;

  // From a page of this origin, which may be empty, so its responses have these fields of CORS.
  struct Browser {
    std::string origin;
    std::vector<HeaderField> fields;
  };
  Browser& BeginBrowser() { return *(browser_ = std::make_unique<Browser>()); }

  // ---- the router's own responses
  Task<void> Reply(
      int status, std::string_view body, std::string_view content_type = "application/json",
      std::span<const HeaderField> extra = {});
  Task<void> ReplyPage(AdminReply reply);
  Task<void> ReplyError(
      HttpError error, std::string message = {}, std::span<const HeaderField> extra = {}, int status = 0);
  // Admission refuses the request, and that is counted. A short body is read first, so that the connection may be kept. `message`: as in
  // ReplyError(); outlives the task.
  Task<void> Reject(HttpError error, int64_t retry_after_ns = 0, std::string_view message = {});
  // Why the body did not come.
  Task<void> ReplyBodyFailed(RequestBody::End end);
  // Why the exchange was cancelled.
  Task<void> ReplyCancelled();
  // For a response that does not depend on the body: reads one that is short. False: it failed, and the client knows.
  Task<bool> TakeShortBody();
  Task<bool> Write(std::string_view bytes);
  // It writes this page, of which other responses may be parts, too.
  bool IsWriting(const AdminReply& page) const { return page_ == &page; }

  // ---- comments until a stream begins (sse_keepalive.h)
  void BeginKeepalive();
  void StopKeepalive() {
    if (keepalive_ != nullptr) keepalive_->Stop();
  }
  bool has_keepalive() const { return keepalive_ != nullptr; }
  // The client has the head of a stream, and may have nothing of a response yet.
  bool sent_head() const { return keepalive_ != nullptr && keepalive_->sent_head(); }
  std::string TakeUnsent() { return keepalive_->TakeUnsent(); }
  // The last part of a body whose head the client has. REQUIRES: sent_head().
  Task<void> EndStream(std::string_view events);

  // ---- a worker's response
  std::string HeadFor(const ResponseHead& response, BodyFraming framing, bool explains = true);
  // A response begins, whose body goes through `relay`, if that is a stream in chunks; `ends_with_connection`: it has
  // no end of its own.
  void Begin(bool ends_with_connection = false);
  void set_relay(Relay* relay) { relay_ = relay; }
  Relay* relay() const { return relay_; }
  bool has_bytes() const { return has_bytes_; }
  void Cut();
  WriteStall Stall(Timer& timer);

  ClientWatch& watch() { return watch_; }
  void Cancelled();
  // The exchange is over.
  void Finish();

 private:
  Task<void> ReplyNothing();
  void BeginReply(int status);
  // The bytes of a response, with its body or without.
  std::string WriteReply(
      int status, std::string_view body, std::string_view content_type, std::span<const HeaderField> extra,
      bool with_body);
  std::vector<HeaderField> ExtraFields() const;
  void SendCutEvent();
  std::string KeepaliveHead();
  static void OnStalled(void* downstream);

  Request& request_;
  ClientWatch watch_;
  std::unique_ptr<Browser> browser_;         // null: it sends no Origin, and CORS is off
  std::unique_ptr<SseKeepalive> keepalive_;  // null: off, or the client wants no stream
  const AdminReply* page_ = nullptr;         // that is being written
  Relay* relay_ = nullptr;                   // of an event stream in chunks, while it runs
  bool has_bytes_ = false;
  bool ends_with_connection_ = false;
};

}  // namespace vllm_router
