// Whether this request, or its client, may have caused workers to fail before. A body that is only
// streamed is not checked: it is sent to one worker only.
#include "proxy/thread/quarantine.h"
#include "base/limits.h"
#include "base/log.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"

namespace vllm_router {
namespace {

uint64_t QuarantineBytesNeeded(const Request& request) {
  const RequestQuarantine& quarantine = request.thread.limits.quarantine;
  const bool may_be_known = quarantine.active() && (request.head->framing == BodyFraming::kChunked ||
                                                    quarantine.MayKnow(request.head->content_length));
  return may_be_known ? kRoutedBodyBytes : 0;
}

bool IsActive(Request& request) { return request.thread.limits.quarantine.active(); }

struct RestrictedClient {
  uint64_t number;
};

Task<Verdict> Check(Request& request) {
  IoThread& thread = request.thread;
  RequestQuarantine& quarantine = thread.limits.quarantine;
  const RequestHead& head = *request.head;
  const std::string_view address = request.connection.peer.address;
  const int64_t now = thread.clock.NowNanos();
  const bool known =
      !request.stream_body && quarantine.MayKnow(request.body->bytes()) &&
      quarantine.IsSuspected(DigestOf(thread, request.settings, head, request.body->held(), address), now);
  if (known) {
    Log(LogLevel::kInfo, "request " + request.id.id + " is rejected: it is quarantined");
    co_await request.client.ReplyError(HttpError::kRequestSuspected);
    co_return Verdict::kEnd;
  }
  if (!quarantine.restricts()) co_return Verdict::kNext;
  const uint64_t client = ClientNumber(thread, request.settings, head, address);
  const RequestQuarantine::Entry entry = quarantine.Enter(client, now);
  if (entry == RequestQuarantine::Entry::kBusy) {
    co_await request.client.Reject(HttpError::kClientRestricted);
    co_return Verdict::kEnd;
  }
  if (entry == RequestQuarantine::Entry::kEntered) {
    request.client_restricted = true;
    request.state.Emplace<RestrictedClient>(client);
  }
  co_return Verdict::kNext;
}

void Leave(Request& request) {
  const auto* const restricted = request.state.Find<RestrictedClient>();
  if (restricted != nullptr) request.thread.limits.quarantine.Leave(restricted->number);
}

}  // namespace

extern constexpr Step kQuarantineStep = {
    .name = "quarantine",
    .begin = &IsActive,
    .run = &Check,
    .needs = &QuarantineBytesNeeded,
    .on_end = &Leave};

}  // namespace vllm_router
