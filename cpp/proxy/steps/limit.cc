// Overload is told before the body, which then need not be sent at all.
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/security/authorizer.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

// The router's own endpoints cost something, too. Probes do not count, since a busy router is not unhealthy; nor do
// operators with a key or a port of their own, who come because it is busy.
bool CountsInRateLimit(const Request& request) {
  const Access access = AccessOf(request);
  if (access != Access::kAdmin) return access == Access::kClient;
  return request.connection.listener_kind == ListenerKind::kPublic &&
         !request.thread.authorizer.takes_admin_keys();
}

bool IsFull(const Request& request) {
  return !request.route().own && !request.may_need_no_worker && request.thread.limits.concurrency.full();
}

bool MayLimit(Request& request) {
  const bool continues = request.head->expects_continue && !request.body->complete();
  return continues || request.thread.limits.rate.limits() || IsFull(request);
}

Task<Verdict> Limit(Request& request) {
  ServerLimits& limits = request.thread.limits;
  if (IsFull(request)) {
    limits.slow_uploads.MakeRoom(1);
    co_await request.client.Reject(HttpError::kQueueFull);
    co_return Verdict::kEnd;
  }
  if (limits.rate.limits() && CountsInRateLimit(request)) {
    const int64_t too_early_ns = limits.rate.Take(request.info.head_ns);
    if (too_early_ns != 0) {
      co_await request.client.Reject(HttpError::kRateLimited, too_early_ns);
      co_return Verdict::kEnd;
    }
  }
  if (request.head->expects_continue && !request.body->complete()) {
    const bool written = co_await request.client.Write("HTTP/1.1 100 Continue\r\n\r\n");
    if (!written) co_return Verdict::kEnd;
  }
  co_return Verdict::kNext;
}

}  // namespace

extern constexpr Step kLimitStep = {.name = "limit", .begin = &MayLimit, .run = &Limit};

}  // namespace vllm_router
