// ClientWait: what a client sees while it waits for new text of its stream: comments, every --continue-keepalive-secs; and
// how long it waited.
//
//   wait.Begin(sink)   nothing comes of the stream; no effect if the client waits already
//   wait.End()         something new goes to the client
//
// Belongs to one ContinuedStream. One thread.
#pragma once

#include <cstdint>

#include "net/timer_wheel.h"

namespace vllm_router {

class ContinuationSink;
struct Request;

class ClientWait {
 public:
  explicit ClientWait(Request& request) : request_(request) {}

  // `sink` is there until Stop(), or until the request is cancelled.
  void Begin(ContinuationSink& sink);
  void End();
  // No comment follows.
  void Stop() { comment_due_.Disarm(); }

  uint32_t comments() const { return comments_; }  // that the client was sent
  int64_t longest_ns() const { return longest_ns_; }

 private:
  void ArmComment();
  static void OnCommentDue(void* self);

  Request& request_;
  ContinuationSink* sink_ = nullptr;
  Timer comment_due_;
  uint32_t comments_ = 0;
  int64_t since_ns_ = 0;  // 0: it does not wait
  int64_t longest_ns_ = 0;
};

}  // namespace vllm_router
