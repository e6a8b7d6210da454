// UpstreamSender: sends the request of an attempt (SEND): the head that is written for its worker, and the body.
//
//   sender.WriteHead(worker->url);
//   sender.Send(write_timeout_ms);     one write, if the socket takes it
//   co_await sender.Stop();            before the end, since its coroutine uses the request
//
// What the socket does not take at once, and a body that is streamed, is sent by a coroutine beside AWAIT and the relay,
// since a worker may respond before it has read everything. A worker that takes nothing for the time is given up
// (kWorkerWriteTimeout), unless it has responded: then it need not read the rest. Belongs to one attempt. One thread.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include <absl/container/inlined_vector.h>

#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/exchange/attempt_connection.h"
#include "proxy/exchange/attempt_record.h"
#include "proxy/exchange/upstream_message.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct IoThread;

class UpstreamSender {
 public:
  // Called with `context`. The first two are for a body that is streamed, and null without one.
  struct Hooks {
    void (*body_failed)(void* context, RequestBody::End end);  // the client's upload broke off
    void (*body_sent)(void* context);
    void* context;
    void (*sending)(void* context) = nullptr;  // its first byte is about to be written; may be null
  };

  // The references must outlive it.
  UpstreamSender(
      IoThread& thread, const UpstreamMessage& message, const Hooks& hooks, AttemptConnection& connection,
      AttemptRecord& record)
      : thread_(thread), message_(message), hooks_(hooks), connection_(connection), record_(record) {}
  UpstreamSender(const UpstreamSender&) = delete;
  UpstreamSender& operator=(const UpstreamSender&) = delete;

  void WriteHead(const WorkerUrl& url);
  // On the connection, which is leased. Again for another connection: all of it, once more.
  void Send(int64_t write_timeout_ms);
  // Ends its coroutine. Closes the connection if that is still sending.
  Task<void> Stop();

  bool sent() const { return sent_; }  // the request, to its last byte
  // When, if that was before the response; 0: it was not.
  int64_t sent_ns() const { return sent_ns_; }
  // Frees what only the request needed. REQUIRES: sent().
  void Forget() { std::string().swap(head_); }

 private:
  using Pieces = absl::InlinedVector<iovec, 8>;

  Pieces HeadAndBody() const;
  Task<void> SendRest(size_t written, int64_t write_timeout_ms);
  static void OnStalled(void* sender);

  IoThread& thread_;
  const UpstreamMessage& message_;
  const Hooks hooks_;
  AttemptConnection& connection_;
  AttemptRecord& record_;
  std::string head_;
  int64_t sent_ns_ = 0;
  bool sent_ = false;
  bool sending_ = false;  // the coroutine runs
  Signal done_;
  Timer deadline_;  // while the socket takes nothing
};

}  // namespace vllm_router
