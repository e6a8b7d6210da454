// ContinuedBody: the request for the rest of a stream, made of the request that began it. All ids so far are its prompt, and
// what limits the number of tokens is less by those that were generated.
//
//   {"prompt":"The sea","max_tokens":9}     ─▶  {"prompt":[1,2,7],"max_tokens":8,"return_token_ids":true}
//   {"messages":[…],"max_tokens":9}         ─▶  {"kv_transfer_params":{"prompt_token_ids":[1,2,7]},"max_tokens":8, …}
//
// vLLM takes a chat's ids since #48145, and ignores them before that, which the first event of its response shows
// (TokenStream::unfit). All other members stay as they are. Pure. Cost: a copy of the body and of the ids.
#pragma once

#include <cstdint>
#include <string>

#include "continuation/eligibility.h"
#include "continuation/id_log.h"
#include "routing/body_map.h"
#include "routing/body_patch.h"

namespace vllm_router {

class ContinuedBody {
 public:
  enum class State : uint8_t {
    kReady,
    kNothingLeft,  // of max_tokens
    kUnreadable,   // it is no number of tokens
  };

  // `output`: what the rest follows. `body`: that which a worker got.
  ContinuedBody(ContinueApi api, std::string body, const IdLog& prompt, const IdLog& output);
  ContinuedBody(const ContinuedBody&) = delete;
  ContinuedBody& operator=(const ContinuedBody&) = delete;

  State state() const { return state_; }
  // REQUIRES: kReady. A part of this.
  const SplicedBody& body() const { return spliced_; }
  uint64_t bytes() const { return body_.size() + ids_.size(); }  // of memory

 private:
  bool LowerLimit(const BodyMap& map, std::string_view name, uint64_t by, bool is_minimum);

  const std::string body_;
  std::string ids_;
  BodyPatch patch_;
  SplicedBody spliced_;
  State state_ = State::kReady;
};

// By which limits a request that this API takes for one of so many tokens, if it does not say.
inline constexpr uint64_t kDefaultCompletionTokens = 16;

}  // namespace vllm_router
