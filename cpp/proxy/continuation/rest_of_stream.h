// RestOfStream: how a stream goes on by its token ids: what is known of them, where its text can be continued, and the
// request that does it.
//
//   rest.tokens()                   gets the stream's events (continuation/token_stream.h)
//   co_await rest.Settle(delivered) true: there is a place, found with some calls of /detokenize at another worker
//   rest.Body()                     the request for what follows it; null: there is no memory for it
//   rest.lacks_end_only()           nothing is left to be generated: End() is what the client lacks
//
// TokenRequest: a request whose worker was asked for token ids, in Request::state:
//
//   client's body   {"model":"m","stream":true, …}
//   worker gets     {"return_token_ids":true,"model":"m","stream":true, …}
//
// Its client sees nothing of that: a response has its ids taken out, and an engine that rejects the member gets the request
// once more without it.
//
// The memory of a RestOfStream counts in --continue-memory-mb, and is returned by the destructor. Belongs to a ContinuedStream. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "continuation/continued_body.h"
#include "continuation/delivered_text.h"
#include "continuation/eligibility.h"
#include "continuation/token_stream.h"
#include "net/task.h"

namespace vllm_router {

class ContinueMemory;
struct Request;
struct Worker;
enum class WorkerId : uint32_t;

struct TokenRequest {
  ContinueApi api = ContinueApi::kCompletions;
  Eligibility eligibility;
  std::string member;                       // what was inserted; empty: the client asks for ids itself
  bool hides = true;                        // the client does not see them
  std::string model;                        // as the body spells it; empty: it names none
  std::optional<WorkerId> refused_by = {};  // whose engine rejects the member: it was sent without
};

class RestOfStream {
 public:
  // All outlive it. `keeps`: the stream may go on; else its ids are taken out of it, and forgotten.
  RestOfStream(Request& request, ContinueMemory& memory, const TokenRequest& asked, bool keeps);
  ~RestOfStream();
  RestOfStream(const RestOfStream&) = delete;
  RestOfStream& operator=(const RestOfStream&) = delete;

  TokenStream& tokens() { return tokens_; }
  const TokenStream& tokens() const { return tokens_; }

  // Ends soon after the request is cancelled.
  Task<bool> Settle(const DeliveredText& delivered);
  // After Settle() was true. Where it goes on:
  size_t ids() const { return ids_; }
  std::string_view repeated() const { return repeated_; }  // what the client has behind that
  bool is_long() const;                                    // above --continue-rerun-tokens
  bool lacks_end_only() const { return lacks_end_only_; }
  const SplicedBody* Body();
  // What is missing of a stream of which all is generated.
  std::string End(const DeliveredText& delivered) const;

 private:
  Task<std::optional<std::string>> TextOf(std::string ids);
  bool MakeBody();
  bool IsGreedy() const;
  std::string ClientsBody() const;

  Request& request_;
  ContinueMemory& memory_;
  const TokenRequest& asked_;
  TokenStream tokens_;
  size_t ids_ = 0;
  std::string_view repeated_;
  std::optional<ContinuedBody> body_;
  uint64_t body_bytes_ = 0;  // of memory
  bool lacks_end_only_ = false;
};

}  // namespace vllm_router
