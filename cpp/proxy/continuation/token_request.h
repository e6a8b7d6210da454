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
#include "proxy/exchange/step.h"

namespace vllm_router {

struct Request;

struct TokenRequest {
  ContinueApi api = ContinueApi::kCompletions;
  Eligibility eligibility;
  std::string member;    // what was inserted; empty: the client asks for ids itself
  bool hides = true;     // the client does not see them
  std::string model;     // as the body spells it; empty: it names none
  bool refused = false;  // the worker's engine rejects the member: it was sent without
};

// The worker has rejected the request, and its client might not be to blame.
bool RejectsIds(const Request& request);
// Sends it without what it was not asked for by its client. REQUIRES: RejectsIds().
Task<Verdict> SendWithoutIds(Request& request);

}  // namespace vllm_router
