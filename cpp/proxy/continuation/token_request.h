// TokenRequest: a request whose worker was asked for token ids, so that another one may go on with them. In Request::state.
//
//   client's body   {"model":"m","stream":true, …}
//   worker gets     {"return_token_ids":true,"model":"m","stream":true, …}
//
// Its client sees nothing of that: a response has its ids taken out (continuation/token_stream.h), and an engine that rejects
// the member gets the request once more without it. One thread.
#pragma once

#include <string>
#include <string_view>

#include "continuation/eligibility.h"

namespace vllm_router {

struct TokenRequest {
  ContinueApi api = ContinueApi::kCompletions;
  Eligibility eligibility;
  std::string member;    // what was inserted; empty: the client asks for ids itself
  bool hides = true;     // the client does not see them
  std::string model;     // as the body spells it; empty: it names none
  bool refused = false;  // the worker's engine rejects the member: it was sent without
};

}  // namespace vllm_router
