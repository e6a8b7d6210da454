// Whether the conversation of a request is held out. Then the baseline chooses its workers, in each attempt. At its end the
// request is a turn of its conversation, in whichever arm.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "base/limits.h"
#include "base/time_units.h"
#include "http/head.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/holdout/holdout_feature.h"
#include "proxy/holdout/thread_holdout.h"
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

ThreadHoldout* HoldoutOf(const Request& request) {
  auto* const holdout = request.thread.features.Find<ThreadHoldout>();
  const bool takes_part = holdout != nullptr && !holdout->stopped() && request.route().computes;
  return takes_part ? holdout : nullptr;
}

uint64_t BytesNeeded(const Request& request) {
  if (HoldoutOf(request) == nullptr || HeadersNameConversation(request.head->fields)) return 0;
  return kRoutedBodyBytes;
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

bool BeginHoldout(Request& request) {
  ThreadHoldout* const holdout = HoldoutOf(request);
  if (holdout == nullptr) return false;
  const std::optional<uint64_t> conversation = FindConversation(request);
  if (!conversation) return false;
  const RequestHead& head = *request.head;
  const Arm arm = holdout->arms.Of(*conversation);
  request.key.arm = arm;
  if (arm == Arm::kHoldout) request.key.baseline = holdout->shared.baseline.get();
  request.state.Emplace<HeldConversation>(
      *conversation, head.framing == BodyFraming::kLength ? head.content_length : request.body->bytes(),
      arm == Arm::kHoldout);
  return false;
}

std::optional<uint32_t> Narrow(const std::optional<uint64_t>& tokens) {
  if (!tokens) return std::nullopt;
  return static_cast<uint32_t>(std::min<uint64_t>(*tokens, std::numeric_limits<uint32_t>::max()));
}

// A request that got no worker tells nothing of the choice, unless it failed for that.
void EndTurn(Request& request) {
  const auto* const held = request.state.Find<HeldConversation>();
  const RequestInfo& info = request.info;
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
  request.thread.features.Find<ThreadHoldout>()->turns.Add(turn);
}

}  // namespace

extern constexpr Step kHoldoutStep = {
    .name = "holdout", .begin = &BeginHoldout, .needs = &BytesNeeded, .on_end = &EndTurn};

}  // namespace vllm_router
