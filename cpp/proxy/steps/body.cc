// How much of the body is read before the request is routed.
#include <algorithm>

#include "base/limits.h"
#include "proxy/api/error_event.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"

namespace vllm_router {
namespace {

// Comments to the client while it waits, if it wants a stream: the body says so.
bool MayStream(const Request& request) {
  return request.settings.sse_keepalive_ms != 0 && HasEventStreams(request.info.route);
}

uint64_t BodyBytesNeeded(const Request& request) { return MayStream(request) ? kRoutedBodyBytes : 0; }

// A small body that has come with its head needs no coroutine.
bool MustRead(Request& request) {
  if (!request.body->complete()) return true;
  if (MayStream(request)) request.client.BeginKeepalive();
  return false;
}

Task<Verdict> ReadBody(Request& request) {
  RequestBody& body = *request.body;
  const RequestHead& head = *request.head;
  const uint64_t needed = request.pipeline.BodyNeeded(request);
  RequestBody::End end = RequestBody::End::kOk;
  if (needed == 0 && head.framing == BodyFraming::kLength && head.content_length > kSmallBodyBytes) {
    end = body.TakeArrived();
  } else {
    end = co_await body.Fill(std::max(needed, kSmallBodyBytes));
  }
  if (end != RequestBody::End::kOk) {
    co_await request.client.ReplyBodyFailed(end);
    co_return Verdict::kEnd;
  }
  request.stream_body = !body.complete();
  if (MayStream(request)) request.client.BeginKeepalive();
  co_return Verdict::kNext;
}

}  // namespace

extern constexpr Step kBodyStep = {
    .name = "body", .begin = &MustRead, .run = &ReadBody, .needs = &BodyBytesNeeded};

}  // namespace vllm_router
