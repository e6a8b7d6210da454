// Whether the stream of a worker that has just responded may go on at another one. Off, it costs a branch.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <string_view>

#include "base/limits.h"
#include "base/text.h"
#include "continuation/eligibility.h"
#include "http/head.h"
#include "proxy/api/settings.h"
#include "proxy/continuation/continuation_feature.h"
#include "proxy/continuation/continued_stream.h"
#include "proxy/continuation/rest_of_stream.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/resumable_response.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

constexpr uint64_t kStreamBytes = 4096;  // that one stream holds beside the body of its request
constexpr std::string_view kHeader = "x-vllm-router-continue";
constexpr std::string_view kNever = "never";

uint8_t Narrowed(uint32_t number) {
  return static_cast<uint8_t>(std::min<uint32_t>(number, std::numeric_limits<uint8_t>::max()));
}

// A client may forbid it, and cannot ask for it.
bool IsForbidden(const RequestHead& head) {
  return std::ranges::any_of(head.fields, [](const HeaderField& field) {
    return EqualsIgnoreCase(field.name, kHeader) && EqualsIgnoreCase(field.value, kNever);
  });
}

bool IsPlainStream(const ResponseHead& response) {
  return response.status == 200 && response.event_stream && !FindHeader(response.fields, "content-encoding");
}

// As far as the heads and the attempts say. An old client would take the end of its connection for that of the stream.
bool MayBegin(const Request& request) {
  return IsPlainStream(request.attempts->response().head()) && request.head->method == "POST" &&
         request.head->minor_version > 0 && request.fully_read() && !request.stream_body &&
         request.attempts == &request.retry_loop && request.attempts->sent() &&
         !request.attempts->response().is_kept() && !request.workers.holder &&
         !FindHeader(request.head->fields, "content-encoding");
}

Eligibility EligibilityOf(const Request& request) {
  const BodyMap* const members = request.edits.members();
  return members != nullptr ? CheckEligibility(request.head->path, *members)
                            : CheckEligibility(request.head->path, BodyMap::Read(request.body->held()));
}

// `has_ids`: its worker was asked for them. Tokens come first, where the stream is long enough.
ContinueMethods MethodsFor(const Request& request, bool has_ids) {
  const Eligibility eligibility = EligibilityOf(request);
  ContinueMethods methods;
  if (eligibility.WhyNot(ContinueMethod::kRerun, ContinuePhase::kText) == ContinueReason::kNone) {
    methods.Add(ContinueMethod::kRerun);
  }
  if (has_ids) {
    methods.Add(ContinueMethod::kTokens);
    methods.PreferTokens();
  }
  return methods;
}

// A body that may be sent again is whole, and so is one that is checked.
uint64_t BytesNeeded(const Request& request) {
  return MayGoOn(request) && ContinueApiOf(request.head->path).has_value() ? kRoutedBodyBytes : 0;
}

// Ids that the client did not ask for are taken out of a stream, whether it may go on or not.
void BeginStream(Request& request) {
  const auto* asked = request.state.Find<TokenRequest>();
  if (asked != nullptr && asked->refused_by) asked = nullptr;
  const bool hides = asked != nullptr && asked->hides && IsPlainStream(request.attempts->response().head());
  if (!MayGoOn(request) || (!hides && !MayBegin(request))) return;
  ContinueLimits limits{
      .methods = MayBegin(request) ? MethodsFor(request, asked != nullptr) : ContinueMethods(),
      .max_continuations = request.settings.continuation.max,
      .max_losses = Narrowed(request.client_restricted ? 0 : request.settings.retry.lost_retries)};
  if (!hides && limits.methods.empty()) return;
  ThreadContinuation& thread = *request.thread.features.Find<ThreadContinuation>();
  uint64_t bytes = limits.methods.empty() ? 0 : request.body->bytes() + kStreamBytes;
  if (bytes != 0 && !thread.memory.Take(bytes)) {
    thread.without_memory.Add();
    if (!hides) return;
    limits.methods = {};
    bytes = 0;
  }
  if (bytes != 0) request.body->ReturnMemory();  // which uploads need
  MakeResumable(request, request.state.Emplace<ContinuedStream>(request, thread, limits, bytes, asked));
}

bool BeginContinuing(Request& request) {
  BeginStream(request);
  return false;
}

void EndContinuing(Request& request) {
  if (auto* const stream = request.state.Find<ContinuedStream>()) stream->Record();
}

}  // namespace

bool MayGoOn(const Request& request) {
  return request.settings.continuation.streams != ContinueStreams::kOff &&
         request.thread.features.Find<ThreadContinuation>() != nullptr && !IsForbidden(*request.head);
}

extern constexpr Step kContinuationStep = {
    .name = "continuation", .begin = &BeginContinuing, .needs = &BytesNeeded, .on_end = &EndContinuing};

}  // namespace vllm_router
