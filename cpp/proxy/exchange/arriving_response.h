// ArrivingResponse: the response that an exchange relays to its client, wherever its bytes come from.
//
//   Begin(attempt)   what arrives at this attempt (upstream_request.h), as of now or later
//   Use(kept, …)     a response that was read before (kept_response.h), in place of what arrives
//
//   response.head(), in(), socket()    its head, what came behind it, and where the rest comes from: a closed socket if
//                                      nothing is left to come
//   response.ticket()                  the load of the attempt, until finished; null: there was no attempt
//   response.ReleaseConnection(true)   the end: the connection to the worker returns to the pool
//
// Before Begin() only socket(), ticket() and ReleaseConnection() may be called. It refers to the attempt and owns nothing
// of it. Belongs to one exchange. One thread.
#pragma once

#include "http/head_parser.h"
#include "net/buffer.h"
#include "net/socket.h"
#include "proxy/exchange/kept_response.h"
#include "proxy/exchange/upstream_request.h"
#include "routing/ticket.h"

namespace vllm_router {

class ArrivingResponse {
 public:
  explicit ArrivingResponse(IoThread& thread) : thread_(thread) {}
  ArrivingResponse(const ArrivingResponse&) = delete;
  ArrivingResponse& operator=(const ArrivingResponse&) = delete;

  void Begin(UpstreamRequest& attempt) { attempt_ = &attempt; }
  // `to_head`: of a request with this method.
  void Use(KeptResponse& kept, bool to_head) {
    kept.Use(thread_, to_head);
    kept_ = &kept;
  }

  bool is_kept() const { return kept_ != nullptr; }
  const ResponseHead& head() const { return is_kept() ? kept_->head() : attempt_->response().head(); }
  Buffer& in() { return is_kept() ? kept_->in() : attempt_->response().in(); }
  Socket& socket() { return has_connection() ? attempt_->connection().socket() : no_connection_; }
  Ticket* ticket() { return attempt_ != nullptr ? &attempt_->ticket() : nullptr; }

  // Frees what only the head needed.
  void ForgetHead() {
    if (is_kept()) {
      kept_->ForgetHead(thread_);
    } else {
      attempt_->response().ForgetHead();
    }
  }
  // The first byte of its body.
  void CountFirstByte() {
    if (attempt_ != nullptr && !is_kept()) attempt_->progress().CountFirstByte();
  }
  // The attempt is over, and so is the request, or another attempt follows.
  void AddAttemptTo(RequestInfo* request) {
    if (attempt_ == nullptr) return;
    const int64_t end_ns = request->end_ns != 0 ? request->end_ns : thread_.clock.NowNanos();
    attempt_->record().AddRelayedTo(request, end_ns);
  }
  void ReleaseConnection(bool reusable) {
    if (attempt_ != nullptr) attempt_->connection().Release(reusable);
  }

 private:
  bool has_connection() const { return attempt_ != nullptr && attempt_->connection().is_leased(); }

  IoThread& thread_;
  UpstreamRequest* attempt_ = nullptr;
  KeptResponse* kept_ = nullptr;
  Socket no_connection_;
};

}  // namespace vllm_router
