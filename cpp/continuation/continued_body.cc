#include "continuation/continued_body.h"

#include <optional>
#include <utility>

#include "base/text.h"

namespace vllm_router {

ContinuedBody::ContinuedBody(ContinueApi api, std::string body, const IdLog& prompt, const IdLog& output)
    : body_(std::move(body)) {
  const BodyMap map = BodyMap::Read(body_);
  const bool is_chat = api == ContinueApi::kChat;
  prompt.AppendTo(&ids_);
  output.AppendTo(&ids_);
  ids_ = is_chat ? Concat(R"({"prompt_token_ids":[)", ids_, "]}") : Concat("[", ids_, "]");
  patch_.InsertBytes(is_chat ? "kv_transfer_params" : "prompt", ids_);
  patch_.Insert("return_token_ids", "true");
  patch_.Remove("truncate_prompt_tokens");
  patch_.Remove("prompt_logprobs");
  const uint64_t generated = output.count();
  bool has_limit = LowerLimit(map, "max_tokens", generated, /*is_minimum=*/false);
  if (is_chat)
    has_limit = LowerLimit(map, "max_completion_tokens", generated, /*is_minimum=*/false) || has_limit;
  LowerLimit(map, "min_tokens", generated, /*is_minimum=*/true);
  if (!is_chat && !has_limit) {
    if (generated >= kDefaultCompletionTokens) {
      state_ = State::kNothingLeft;
    } else {
      patch_.Insert("max_tokens", Concat(kDefaultCompletionTokens - generated));
    }
  }
  if (!map.ok()) state_ = State::kUnreadable;
  if (state_ == State::kReady) spliced_ = patch_.Apply(map);
}

// False: the request has none of this name.
bool ContinuedBody::LowerLimit(const BodyMap& map, std::string_view name, uint64_t by, bool is_minimum) {
  const BodyMap::Member* const member = map.Find(name);
  if (member == nullptr || member->type == BodyMap::Type::kNull) return false;
  const std::optional<uint64_t> limit = ParseDecimal(member->value);
  if (!limit) {
    state_ = State::kUnreadable;
  } else if (*limit > by || is_minimum) {
    patch_.Insert(name, Concat(*limit > by ? *limit - by : uint64_t{0}));
  } else if (state_ == State::kReady) {
    state_ = State::kNothingLeft;
  }
  return true;
}

}  // namespace vllm_router
