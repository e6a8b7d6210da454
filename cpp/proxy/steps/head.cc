#include <span>
#include <string>

#include "base/clock.h"
#include "http/head_parser.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

// A wait for the rest of a head, which the request's deadline ends.
struct HeadWait {
  Request& request;
  bool is_late = false;

  ~HeadWait() { request.deadline.Disarm(); }
  static void OnLate(void* context) {
    auto* wait = static_cast<HeadWait*>(context);
    wait->is_late = true;
    wait->request.connection.socket.InterruptRead();
  }
};

Task<void> ReplyHeadFailed(Request& request, const HeadError& error) {
  request.info.bad_request_rule = error.rule;
  request.connection.linger = error.status != 0;
  if (error.status == 0) {
    request.info.error = "not_http";
    co_return;
  }
  const HeaderField allow{"Allow", kForwardedMethods};
  const std::span<const HeaderField> extra(&allow, error.status == 405 ? 1 : 0);
  co_await request.client.ReplyError(HttpError::kBadRequest, std::string(error.message), extra, error.status);
}

Task<Verdict> ReadHead(Request& request) {
  Connection& connection = request.connection;
  IoThread& thread = request.thread;
  RequestHeadParser& parser = request.head.BeginParsing();
  Buffer& in = connection.in;
  Socket& socket = connection.socket;
  HeadWait wait{request};
  for (;;) {
    if (!in.empty()) {
      const ParseState state = parser.Feed(in.view());
      if (state == ParseState::kDone) break;
      if (state == ParseState::kBad) {
        co_await ReplyHeadFailed(request, parser.error());
        co_return Verdict::kEnd;
      }
    }
    in.Reserve(in.empty() ? BufferPool::kSmallest : in.size());
    const IoResult read = socket.TryRead(in.room());
    if (read.ok()) {
      in.Commit(static_cast<size_t>(read.bytes));
      continue;
    }
    if (!read.would_block()) co_return Verdict::kEnd;
    if (!request.deadline.armed())
      request.deadline.Arm(thread.loop.timers(), connection.HeadTimeLeftMs(), &HeadWait::OnLate, &wait);
    // A partial head counts as silence when others need the connection.
    thread.idle.Enter(&connection);
    const bool readable = co_await socket.Readable();
    thread.idle.Leave(&connection);
    if (wait.is_late) {
      connection.linger = true;
      co_await request.client.ReplyError(HttpError::kHeadTimeout);
      co_return Verdict::kEnd;
    }
    if (!readable) co_return Verdict::kEnd;
  }
  request.head.Arrived();
  request.scope.set_via(request.head->via);
  request.info.head_ns = thread.clock.NowNanos();
  request.info.wall_us = UnixMicros();
  co_return Verdict::kNext;
}

}  // namespace

extern constexpr Step kHeadStep = {.name = "head", .run = &ReadHead};

}  // namespace vllm_router
