// Whether the conversation of a request is held out. Then the baseline chooses its workers, in each attempt. At its end the
// request is a turn of its conversation, in whichever arm.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "base/limits.h"
#include "base/time_units.h"
#include "http/head.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/holdout/holdout_feature.h"
#include "proxy/holdout/thread_holdout.h"
#include "proxy/thread/delegated_requests.h"
#include "proxy/thread/io_thread.h"
#include "routing/conversation.h"
#include "routing/request_view.h"
#include "routing/truncated_json.h"

namespace vllm_router {
namespace {

struct HeldConversation {
  uint64_t conversation = 0;
  uint64_t body_bytes = 0;
  bool is_held_out = false;
};

ThreadHoldout* HoldoutOf(const IoThread& thread, const RequestInfo& info) {
  auto* const holdout = thread.features.Find<ThreadHoldout>();
  const bool takes_part = holdout != nullptr && !holdout->stopped() && RouteOf(info.route).computes;
  return takes_part ? holdout : nullptr;
}

uint64_t BytesNeeded(const Request& request) {
  const bool has_part = HoldoutOf(request.thread, request.info) != nullptr;
  return has_part && !HeadersNameConversation(request.head->fields) ? kRoutedBodyBytes : 0;
}

bool NeedsBody(const DelegatedRequest& request) {
  return HoldoutOf(request.thread, request.info) != nullptr && !HeadersNameConversation(request.fields);
}

// Of a body that is too long to be held its first part counts, as for policies.
std::optional<uint64_t> FindConversation(Request& request) {
  const RequestHead& head = *request.head;
  if (const auto named = ConversationInHeaders(head.fields)) return named;
  RequestBody& body = *request.body;
  if (head.framing == BodyFraming::kNone) return std::nullopt;
  RequestView view{.path = head.path, .body_is_padded = true};
  std::optional<TruncatedJson> prefix;
  if (request.stream_body || body.bytes() > kRoutedBodyBytes) {
    prefix.emplace(body.held_bytes().first(kRoutedBodyBytes));
    view.body = prefix->view();
  } else {
    view.body = body.held();
  }
  return view.body->empty() ? std::nullopt : ConversationInBody(view);
}

std::optional<uint64_t> FindConversation(const DelegatedRequest& request) {
  if (const auto named = ConversationInHeaders(request.fields)) return named;
  RequestView view{.path = request.path, .body = request.body};
  std::string beginning;
  std::optional<TruncatedJson> prefix;
  if (request.body.size() > kRoutedBodyBytes) {
    beginning = request.body.substr(0, kRoutedBodyBytes);
    prefix.emplace(beginning);
    view.body = prefix->view();
    view.body_is_padded = true;
  }
  return view.body->empty() ? std::nullopt : ConversationInBody(view);
}

HeldConversation Hold(ThreadHoldout& holdout, uint64_t conversation, uint64_t body_bytes, RoutingKey* key) {
  key->arm = holdout.arms.Of(conversation);
  if (key->arm == Arm::kHoldout) key->baseline = holdout.shared.baseline.get();
  return {.conversation = conversation, .body_bytes = body_bytes, .is_held_out = key->arm == Arm::kHoldout};
}

bool BeginHoldout(Request& request) {
  ThreadHoldout* const holdout = HoldoutOf(request.thread, request.info);
  if (holdout == nullptr) return false;
  const std::optional<uint64_t> conversation = FindConversation(request);
  if (!conversation) return false;
  const RequestHead& head = *request.head;
  request.state.Emplace<HeldConversation>(Hold(
      *holdout, *conversation,
      head.framing == BodyFraming::kLength ? head.content_length : request.body->bytes(), &request.key));
  return false;
}

void BeginDelegated(DelegatedRequest& request) {
  ThreadHoldout* const holdout = HoldoutOf(request.thread, request.info);
  if (holdout == nullptr) return;
  const std::optional<uint64_t> conversation = FindConversation(request);
  if (!conversation) return;
  request.state.Own(
      std::make_unique<HeldConversation>(Hold(*holdout, *conversation, request.body_bytes, &request.key)));
}

std::optional<uint32_t> Narrow(const std::optional<uint64_t>& tokens) {
  if (!tokens) return std::nullopt;
  return static_cast<uint32_t>(std::min<uint64_t>(*tokens, std::numeric_limits<uint32_t>::max()));
}

// A request that got no worker tells nothing of the choice, unless it failed for that.
void AddTurn(const IoThread& thread, const RequestInfo& info, const HeldConversation* held) {
  if (held == nullptr || info.end == ExchangeEnd::kDrain) return;
  const bool has_failed = info.status >= 500 || info.broke_off();
  if (info.worker == nullptr && !has_failed) return;
  Turn turn{
      .conversation = held->conversation,
      .begin_ns = info.head_ns,
      .end_ns = info.end_ns,
      .body_bytes = held->body_bytes,
      .prompt_tokens = Narrow(info.prompt_tokens),
      .cached_tokens = Narrow(info.cached_tokens),
      .is_held_out = held->is_held_out,
      .has_failed = has_failed};
  if (info.stream && info.first_body_ns != 0)
    turn.first_token_s =
        static_cast<float>(info.first_body_ns - info.head_ns) / static_cast<float>(kNanosPerSecond);
  thread.features.Find<ThreadHoldout>()->turns.Add(turn);
}

void EndTurn(Request& request) {
  AddTurn(request.thread, request.info, request.state.Find<HeldConversation>());
}

void EndDelegated(DelegatedRequest& request) {
  AddTurn(request.thread, request.info, request.state.Find<HeldConversation>());
}

}  // namespace

extern constexpr DelegatedRequests::Hooks kDelegatedTurns = {
    .needs_body = &NeedsBody, .begin = &BeginDelegated, .end = &EndDelegated};
extern constexpr Step kHoldoutStep = {
    .name = "holdout", .begin = &BeginHoldout, .needs = &BytesNeeded, .on_end = &EndTurn};

}  // namespace vllm_router
