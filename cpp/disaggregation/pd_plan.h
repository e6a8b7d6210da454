// PdPlan: how one request is served by a fleet whose prompts are computed (prefill) and whose tokens are generated
// (decode) by different workers, and the copies of its body that the workers get.
//
//   kTwoStages   prefill gets the request with one token to generate, decode the request itself; both are told where
//                the KV blocks are (kv_connector.h)
//   kLocal       one decode worker does both, with the client's body
//   kSingle      not a request that generates: one prefill worker, as without stages
//   kRejected    400, with a text
//
// Local is what becomes more than one request inside the engine: it would get the first prompt's blocks, or end the
// decode worker's process. So is what the two workers could read differently: images that each of them fetches, a
// template of the client, a value of the wrong type that the prefill copy replaces; and what decode's API rejects
// before its engine could free prefill's blocks. In every kind, the members with which a client could steer transfers
// are removed (transfer_members.h). All other bytes reach the workers as they are.
//
// Behind workers of which none serves a request alone nothing is local. SGLang gets the client's two copies: a list of
// prompts is served by one pair, and more than one sequence of a prompt is rejected. P2P-NCCL and MoRI-IO get what two
// workers can share, and all else that computes is rejected.
//
// A repeated member: every one is looked at, and one reason is enough. Pure; any thread. Views of the body are kept.
// Cost: about 1 us, and some passes over what messages and input hold (1 to 2 ns per byte of lists of short parts). A
// thousand long names with escapes cost 5 ms, since each is unescaped for each name that is looked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "disaggregation/kv_connector.h"
#include "disaggregation/transfer_members.h"

namespace vllm_router {

enum class PdRoute : uint8_t {
  kCompletions,        // /v1/completions
  kChat,               // /v1/chat/completions
  kBatchChat,          // /v1/chat/completions/batch
  kResponses,          // /v1/responses
  kMessages,           // /v1/messages
  kInferenceGenerate,  // /inference/v1/generate
  kGenerate,           // /generate
  kExtra,              // one of --pd-extra-routes
  kOneEngine,          // what one engine computes: embeddings, scores, audio, /invocations
  kOther,              // what needs no engine: /tokenize, stored responses, GET; and --pd-pass-paths
  kUnknown,            // passed on to no worker
};

// Which path a request of a fleet with stages has. `path`: without the query, as the client spells it; another spelling
// of a known path is unknown, so nothing reaches a worker under a name that its members were not searched for.
// A path means nothing by itself: an unknown one may generate, and take members that the router does not know.
struct PdPaths {
  std::span<const std::string> two_stages;  // --pd-extra-routes
  std::span<const std::string> passed;      // --pd-pass-paths
};
PdRoute PdRouteOf(std::string_view method, std::string_view path, bool websocket, const PdPaths& paths);

// Prompts of a list, each of which has a bootstrap room.
inline constexpr size_t kMaxListedPrompts = 4096;

enum class PdKind : uint8_t { kTwoStages, kLocal, kSingle, kRejected };

// Why a request is local.
enum class LocalReason : uint8_t {
  kNone,
  kBatch,             // several prompts, or lists of token ids
  kSeveralSequences,  // n or best_of above 1
  kBeamSearch,
  kWrongType,       // of a member that decides; the decode worker's own error is the client's
  kStoredResponse,  // or conversation: known to the decode worker that made it
  kBackground,
  kServerTools,   // tools that the worker calls itself, each call with a request of its own
  kPromptEmbeds,  // beside a prompt, they are another one
  kTruncation,  // the prompt is cut to what max_tokens leaves of the context, and prefill's copy has another one
  kDuplicate,  // two sampling_params
  kMedia,      // images and the like that each worker fetches by itself, or knows by a name
  kTemplate,   // of the client, which may render another prompt at each worker
};
std::string_view LocalReasonName(LocalReason reason);  // a label of metrics

struct PdPlan {
  PdKind kind = PdKind::kSingle;
  LocalReason reason = LocalReason::kNone;
  std::string error;  // kRejected: for the client
  // SGLang: the request is a list of so many prompts, each with a bootstrap room of its own.
  std::optional<size_t> listed_prompts = {};
  StrippedMembers stripped;  // from each copy
  // One copy for kLocal and kSingle, and decode's without parameters. It does nothing to a body that is no object.
  BodyPatch plain;
};

// The body of a request that one worker serves may be anything; one that a worker might read as a JSON object, but the
// router does not, is rejected.
PdPlan MakePdPlan(PdRoute route, const BodyMap& body, const KvConnector& connector);
// The same of a fleet without stages, which one worker serves in any case: kSingle or kRejected.
PdPlan MakeSinglePlan(const BodyMap& body);

// The copies of a request whose kind is kTwoStages. If anything is missing for the connector, they have no parameters,
// rather than half of them. REQUIRES: body.ok().
BodyPatch PrefillPatch(
    PdRoute route, const BodyMap& body, const KvConnector& connector, const PairAttempt& attempt);
// `parameters`: of ReadPrefillResponse(), whose response outlives the patch. Decode alone gets `plain`, as what some
// connectors tell it without parameters makes it wait for prefill.
BodyPatch DecodePatch(
    PdRoute route, const PdPlan& plan, const KvConnector& connector, const PairAttempt& attempt,
    std::optional<std::string_view> parameters);
// Decode's copy of an attempt whose prefill has handed nothing over: `plain`, with the pair's id where engines read it.
BodyPatch DecodePatchWithout(
    PdRoute route, const PdPlan& plan, const KvConnector& connector, const PairAttempt& attempt);

}  // namespace vllm_router
