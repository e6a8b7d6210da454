// Decision: a policy's result, and why. Outcome: how the request ended. Both are plain values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "hashing/block_hash.h"
#include "worker/worker.h"

namespace vllm_router {

// Stable names: a metric label, `ticket.reason`, and a response header. Meanings: docs/reference/policies.md.
enum class Reason : uint8_t {
  kRandom,
  kRoundRobin,
  kLeastLoaded,
  kPowerOfTwo,
  kSessionHash,   // owner of the session key
  kBodyHash,      // owner of a digest of the body; the request names no session
  kFailover,      // the key's home is not eligible; the next one took it
  kOverflow,      // the preferred worker had no room
  kPrefixHash,    // owner of the prefix digest, or of the prompt's first tokens
  kPrefixHit,     // the worker that holds most of the prompt
  kPrefixMiss,    // no worker holds enough of it; the least loaded
  kPrefixSpread,  // a new conversation on a hot prefix; another worker is recruited
  kLoadBalance,   // the holder, or the fleet, is too uneven; the least loaded
  kLowestCost,    // the minimum of the policy's cost
  kSampled,       // drawn by cost, and not the minimum
  kKvAware,       // the maximum of the policy's score of cached tokens, load and health
  kSticky,        // the session's worker
  kStickyNew,     // a new session; the worker with the fewest
  kFallback,      // the key part was missing; the fallback policy decided
  kPinned,        // the caller named the worker
  kHoldout,       // the conversation is held out; the baseline policy chose the worker
};
inline constexpr int kReasonCount = static_cast<int>(Reason::kHoldout) + 1;
std::string_view ReasonName(Reason reason);

// While some conversations are held out of the policy (holdout/): whether this one is. kNone: none are.
enum class Arm : uint8_t { kNone, kPolicy, kHoldout };
std::string_view ArmName(Arm arm);  // none, policy, holdout

enum class MatchUnit : uint8_t { kNone, kBytes, kTokens, kBlocks };
std::string_view MatchUnitName(MatchUnit unit);

// The candidates of a decision, and what it compared: filled only if requested.
struct Explanation {
  struct Candidate {
    WorkerId worker{};
    std::string url;
    uint32_t weight = 0;              // thousandths
    int64_t open_requests = 0;        // as it was just before the decision
    int64_t outstanding_tokens = 0;   // likewise
    std::optional<uint64_t> matched;  // of the prompt, where the policy matches prompts
    std::optional<double> cost;       // where the policy compares costs: the lowest wins
    std::optional<double> score;      // where it compares scores: the highest wins
    std::optional<int64_t> limit;     // requests at which the policy passes the worker over
  };
  // For policies that bound loads. REQUIRES: the candidates are the eligible workers of `fleet`.
  template <typename Fleet, typename LimitOf>
  void SetLimits(const Fleet& fleet, LimitOf limit_of) {
    for (size_t i = 0; i < candidates.size(); ++i)
      candidates[i].limit = limit_of(fleet.worker(fleet.eligible()[i]));
  }

  std::vector<Candidate> candidates;  // the eligible workers, in fleet order
  uint32_t not_eligible = 0;          // members of the fleet besides
  uint32_t overloaded = 0;            // of these, passed over since their queue or KV cache is full
  std::string model;                  // of the request, if its body was read
};

// What a policy that learns from times knew when it decided, for the comparison with the outcome.
struct Forecast {
  int64_t decided_ns = 0;   // 0: it compares nothing
  float first_token_s = 0;  // expected from then to the first token
  float token_s = 0;        // and from one token to the next
  uint32_t shared = 0;      // 1 + the number of the prefix in the policy's count of open requests; 0: none
  uint32_t claimed_tokens = 0;  // cached, as the policy believed; 0: not to be compared
  uint16_t slot = 0;            // of the worker, in the policy's memory of workers
  uint8_t pool = 0;             // of its means
};

struct Decision {
  uint32_t position = 0;  // in FleetView::members() of the view that was given
  WorkerId worker{};      // the same worker, for good
  Reason reason = Reason::kRandom;
  MatchUnit unit = MatchUnit::kNone;
  uint8_t endpoint = 0;  // RoutingKey::endpoint, where the policy asks it again when the request has ended
  bool blocks_are_tokens = false;  // of MatchUnit::kBlocks: they are of token ids, not of text
  Arm arm = Arm::kNone;            // RoutingKey::arm
  uint64_t matched = 0;            // of the chosen worker, in units; 0 <= matched <= total
  uint64_t total = 0;
  // The longest match of an eligible worker, if another one's is longer than the chosen one's; else as `matched`, or 0.
  uint64_t best_matched = 0;
  uint32_t best_position = 0;
  // What the Router adds: the worker of the longest match, and loads as they were, without this request.
  WorkerId best_worker{};
  struct Loads {
    uint32_t open = 0;           // requests at the chosen worker
    uint32_t best_open = 0;      // and at the one with the longest match
    uint32_t queued_tokens = 0;  // to prefill at the chosen worker
  };
  Loads loads;
  // The policy's memory of the prompt until the request ends (index/claim_table.h). 0: there is nothing
  // to take back.
  uint64_t claim = 0;
  // The request among those that the policy counts as open (policy/active_blocks.h). 0: it counts none.
  uint64_t active = 0;
  uint32_t shared_beyond = 0;  // blocks of a shared pool beyond what the worker holds on its GPU
  // What the policy predicts of its worker until the first token came (index/predicted_blocks.h). 0: nothing.
  uint64_t prediction = 0;
  // As `claim`, in the index of what all routers sent (index/coarse_index.h). 0: there is nothing to take back.
  uint64_t coarse_claim = 0;
  Forecast forecast;
  std::shared_ptr<const Explanation> explanation;  // null unless requested
};

// Another eligible worker holds `matched` of the prompt: it is the best one if the chosen one and those before hold less.
inline void ConsiderBest(uint32_t position, uint64_t matched, Decision* decision) {
  if (matched <= std::max(decision->matched, decision->best_matched)) return;
  decision->best_matched = matched;
  decision->best_position = position;
}

struct Outcome {
  enum class End : uint8_t { kFinished, kClientGone, kWorkerFailed, kNotSent };
  End end = End::kFinished;
  int status = 0;  // HTTP status of the worker's response; 0 when there was none
  std::optional<double> first_token_ms;
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> cached_tokens;
  std::optional<uint64_t> output_tokens;
  // The prompt's blocks and then the response's, if the code that ends the request knows them; valid
  // during the call.
  std::span<const BlockHash> blocks;
  // By the clock of RoutingKey::now_ns; 0: not known. The ticket knows when the first token came.
  int64_t first_token_ns = 0;
  int64_t now_ns = 0;
};

// True if the worker has processed the prompt, as far as the end and the status tell. A client may have left in the
// middle of the prefill; what was computed by then is cached. An engine that answers with an error has refused the
// prompt (too long, no such adapter, a full queue), or may have lost what it computed.
constexpr bool ComputedPrompt(const Outcome& outcome) {
  const bool has_ended = outcome.end == Outcome::End::kFinished || outcome.end == Outcome::End::kClientGone;
  return has_ended && outcome.status < 400;
}

std::string_view EndName(Outcome::End end);  // finished, client_gone, worker_failed, not_sent
std::optional<Outcome::End> EndByName(std::string_view name);

}  // namespace vllm_router
