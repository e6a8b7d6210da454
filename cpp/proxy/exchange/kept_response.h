// KeptResponse: a whole response of a failed attempt, as it came, which the client gets if nothing better follows.
//
//   KeptResponse kept(std::move(bytes), worker, decision);   // head and body, and whose it is
//   kept.Use(thread, to_head);                               // from now on head() and in() are as those of an attempt
//
// Belongs to one exchange.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "http/head_parser.h"
#include "net/buffer.h"
#include "policy/decision.h"
#include "proxy/thread/io_thread.h"
#include "worker/worker.h"

namespace vllm_router {

class KeptResponse {
 public:
  KeptResponse(std::string bytes, std::shared_ptr<Worker> worker, std::optional<Decision> decision = {})
      : bytes_(std::move(bytes)), worker_(std::move(worker)), decision_(std::move(decision)) {}

  const std::shared_ptr<Worker>& worker() const { return worker_; }
  const std::optional<Decision>& decision() const { return decision_; }

  void Use(IoThread& thread, bool to_head) {
    parser_ = thread.response_parsers.Acquire();
    parser_->Reset(to_head);
    in_.emplace(thread.buffers);
    in_->Append(bytes_);
    std::string().swap(bytes_);
    const ParseState parsed = parser_->Feed(in_->view());
    ROUTER_CHECK(parsed == ParseState::kDone, "a response that was parsed before can be parsed again");
  }
  bool used() const { return in_.has_value(); }

  // REQUIRES: used().
  const ResponseHead& head() const { return parser_->head(); }
  Buffer& in() { return *in_; }
  void ForgetHead(IoThread& thread) { thread.response_parsers.Release(std::move(parser_)); }

 private:
  std::string bytes_;
  std::shared_ptr<Worker> worker_;
  std::optional<Decision> decision_;
  std::unique_ptr<ResponseHeadParser> parser_;
  std::optional<Buffer> in_;
};

}  // namespace vllm_router
