// Eligibility: by which methods the stream of a request can be continued at another worker when its own is lost, as far
// as the request tells.
//
//   CheckEligibility(path, body) ─▶ Eligibility ─▶ WhyNot(method, phase): kNone, or the reason
//
// Three methods, from the one that needs least of the engine:
//
//   rerun          the same request runs again; what the client has is verified and dropped (rerun_verifier.h).
//                  For requests that engines repeat: temperature 0, or a seed.
//   tokens         the prompt's token ids with those generated so far are the prompt of another request.
//                  For requests of one choice whose sampling depends on nothing but the tokens in front.
//   parsed_tokens  tokens, with a call that makes text and tool calls of them; where a tool call is open or was sent
//
// A reason is of the request alone. What the worker's engine can do, how much memory is free and how often the stream
// was continued is checked elsewhere. What is not known is taken as a reason: a stream that ends early costs less than a
// wrong one. docs/explanation/continued_streams.md has a sentence for each reason.
//
// Pure; any thread. Cost: some comparisons per member, a pass over `messages` and `tools`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "routing/body_map.h"

namespace vllm_router {

enum class ContinueMethod : uint8_t { kRerun, kTokens, kParsedTokens };
inline constexpr size_t kContinueMethods = 3;
std::string_view ContinueMethodName(ContinueMethod method);

enum class ContinueReason : uint8_t {
  kNone,
  // Of all methods.
  kRoute,        // not an API whose streams are continued
  kNotStreamed,  // `stream` is not true
  kNotJson,      // not one JSON object, or one of very many members
  kOddNames,     // a name twice, or with an escape: JSON parsers read these differently
  kState,        // it reads or leaves what one worker has: stored responses, sessions, transfers
  kBeamSearch,   // its candidates are at the worker
  // Of rerun.
  kSampled,  // another run draws other tokens: neither temperature 0 nor a seed
  kFormat,   // the events of this API are not verified
  // Of both others.
  kNoTokenIds,      // this API streams no token ids
  kSeveralChoices,  // n, best_of or a list of prompts
  kSeed,            // the generator would start again
  kOutputHistory,  // sampling depends on which of the tokens were generated: penalties, bad words, processors
  kMedia,          // token ids are no whole prompt beside images or audio
  kHiddenReasoning,  // ids of reasoning are hidden
  kEcho,             // the prompt is part of the text, and engines leave that out beside ids
  kStop,             // engines hold text back that may be the beginning of a stop string
  kGrammar,          // a grammar would start at its root; not of tokens while reasoning goes on
  // Of one of the two, by what was generated.
  kToolCall,    // tokens: a tool call is open or was sent, and the parser would not know
  kNoToolCall,  // parsed_tokens: nothing needs it
};
inline constexpr size_t kContinueReasons = 20;
std::string_view ContinueReasonName(ContinueReason reason);

// APIs whose streams are generated text.
enum class ContinueApi : uint8_t {
  kCompletions,
  kChat,
  kMessages,
  kResponses,
  kVllmGenerate,
  kSglangGenerate
};
std::optional<ContinueApi> ContinueApiOf(std::string_view path);

// What the client got last.
enum class ContinuePhase : uint8_t {
  kText,
  kReasoning,
  kToolCall,  // or has got: a call that is open, or was sent before
};

struct Eligibility {
  std::array<ContinueReason, kContinueMethods> why_not{};  // by method, whatever is generated

  ContinueReason WhyNot(ContinueMethod method, ContinuePhase phase) const;
  // In some phase by some method.
  bool MayContinue() const;
};

// `path`: of the request's target, without query.
Eligibility CheckEligibility(std::string_view path, const BodyMap& body);

}  // namespace vllm_router
