// Why this worker was chosen, in words: the text of Ticket.explain(), and the headers of
// --decision-headers.
//
//   http://gpu-1:8000, chosen by cache_aware: it was sent most of the prompt, 1740 of 1893 bytes (prefix_hit).
//
//     worker              open requests   outstanding tokens   weight   matched
//   > http://gpu-1:8000               4                  812        1      1740
//     http://gpu-0:8000               3                  700        1         0
//
// The table is there only if the key requested it (RoutingKey::explanation). Pure functions.
#pragma once

#include <string>
#include <string_view>

#include "policy/decision.h"
#include "policy/policy.h"

namespace vllm_router {

// Several lines without a trailing line feed.
std::string ExplainDecision(std::string_view worker_url, std::string_view policy, const Decision& decision);

// The kind of reason: "cache_hit", "load", "sticky" or "fallback".
std::string_view MethodOf(Reason reason);

// "1740/1893 bytes"; empty where nothing is matched.
std::string CacheStatus(const Decision& decision);

// "http://a:8000 load=3 matched=0, …": the worker chosen, then those with the longest matches, at most
// `count`; empty without an explanation.
std::string CandidatesLine(const Decision& decision, size_t count);

}  // namespace vllm_router
