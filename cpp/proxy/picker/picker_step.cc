// With --epp-only no request is proxied: those for workers are rejected, and the router's own endpoints go on.
#include <utility>

#include "proxy/api/error_response.h"
#include "proxy/api/server_options.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/picker/picker_feature.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

bool IsForWorkers(Request& request) { return request.thread.options.epp_only && !request.route().own; }

Task<Verdict> RejectProxied(Request& request) {
  const bool taken = co_await request.client.TakeShortBody();
  if (!taken) co_return Verdict::kEnd;
  co_await request.client.ReplyError(
      HttpError::kPathNotPassed,
      "This router picks workers for a gateway and proxies no request itself (--epp-only); send the request "
      "to "
      "the gateway.");
  co_return Verdict::kEnd;
}

}  // namespace

extern constexpr Step kPickerOnlyStep = {
    .name = "picker_only", .begin = &IsForWorkers, .run = &RejectProxied};

}  // namespace vllm_router
