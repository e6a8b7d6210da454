#include "routing/explanation.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

using Candidate = Explanation::Candidate;

std::string_view Sentence(Reason reason) {
  switch (reason) {
    case Reason::kRandom:
      return "it was chosen at random";
    case Reason::kRoundRobin:
      return "it is the next one in turn";
    case Reason::kLeastLoaded:
      return "it has the lowest load";
    case Reason::kPowerOfTwo:
      return "it is the less loaded of two workers chosen at random";
    case Reason::kSessionHash:
      return "it owns the request's session";
    case Reason::kBodyHash:
      return "it owns the digest of the conversation's opening, or of the body; the request names no session";
    case Reason::kFailover:
      return "the owner of the session may not be chosen now, and this worker comes next";
    case Reason::kOverflow:
      return "the worker that would have been chosen is above its load bound";
    case Reason::kPrefixHash:
      return "it owns the prompt's prefix on the ring";
    case Reason::kPrefixHit:
      return "it was sent the largest part of the prompt";
    case Reason::kPrefixMiss:
      return "no worker was sent enough of the prompt, and this one has the lowest load";
    case Reason::kPrefixSpread:
      return "many new conversations share this prefix, so it is sent to one more worker";
    case Reason::kLoadBalance:
      return "the worker that was sent the largest part of the prompt has too much load, and this one has "
             "the lowest";
    case Reason::kLowestCost:
      return "the request has the lowest total cost there";
    case Reason::kSampled:
      return "it was drawn at random, with a higher chance for lower costs";
    case Reason::kKvAware:
      return "it has the highest score of cached tokens, load and health";
    case Reason::kSticky:
      return "the session is assigned to it";
    case Reason::kStickyNew:
      return "the session is new, and it has the fewest sessions for its weight";
    case Reason::kFallback:
      return "the request has no key that the policy needs, so the fallback policy chose";
    case Reason::kPinned:
      return "it holds the response that the request names";
    case Reason::kHoldout:
      return "the conversation is held out of the policy, and the baseline chose it";
  }
  return "";
}

// The chosen one first, then by matched length, then by load.
std::vector<const Candidate*> InOrder(const Decision& decision) {
  std::vector<const Candidate*> order;
  for (const Candidate& candidate : decision.explanation->candidates) order.push_back(&candidate);
  std::stable_sort(order.begin(), order.end(), [&](const Candidate* a, const Candidate* b) {
    const bool a_chosen = a->worker == decision.worker;
    const bool b_chosen = b->worker == decision.worker;
    if (a_chosen != b_chosen) return a_chosen;
    if (a->matched != b->matched) return a->matched > b->matched;
    return static_cast<double>(a->open_requests) / a->weight <
           static_cast<double>(b->open_requests) / b->weight;
  });
  return order;
}

std::string Weight(uint32_t thousandths) {
  char text[16];
  std::snprintf(text, sizeof text, "%g", static_cast<double>(thousandths) / kWeightOne);
  return text;
}

using Row = std::array<std::string, 5>;

std::string Table(const std::vector<Row>& rows, size_t columns) {
  std::array<size_t, 5> widths{};
  for (const Row& row : rows) {
    for (size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (size_t line = 0; line < rows.size(); ++line) {
    text += line == 1 ? "\n> " : "\n  ";  // the first row below the heading is the worker chosen
    for (size_t i = 0; i < columns; ++i) {
      const std::string blanks(widths[i] - rows[line][i].size(), ' ');
      text += i == 0 ? rows[line][i] + blanks : "   " + blanks + rows[line][i];
    }
  }
  return text;
}

}  // namespace

std::string ExplainDecision(std::string_view worker_url, std::string_view policy, const Decision& decision) {
  std::string text = Concat(worker_url, ", chosen by ", policy, ": ", Sentence(decision.reason));
  if (decision.unit != MatchUnit::kNone) {
    text += Concat(", ", decision.matched, " of ", decision.total, " ", MatchUnitName(decision.unit));
  }
  text += Concat(" (", ReasonName(decision.reason), ").");
  if (decision.explanation == nullptr) {
    return text + "\nTo see all candidates, pass explain=True: select(..., explain=True).";
  }
  bool matches = false;
  for (const Candidate& candidate : decision.explanation->candidates)
    matches |= candidate.matched.has_value();
  std::vector<Row> rows = {{"worker", "open requests", "outstanding tokens", "weight", "matched"}};
  for (const Candidate* candidate : InOrder(decision)) {
    rows.push_back(
        {candidate->url, std::to_string(candidate->open_requests),
         std::to_string(candidate->outstanding_tokens), Weight(candidate->weight),
         candidate->matched ? std::to_string(*candidate->matched) : "-"});
  }
  text += "\n" + Table(rows, matches ? 5 : 4);
  if (const uint32_t others = decision.explanation->not_eligible; others != 0) {
    const uint32_t overloaded = decision.explanation->overloaded;
    text += Concat(
        "\n\n", others, others == 1 ? " other worker was" : " other workers were", " not eligible",
        overloaded == 0 ? std::string() : Concat(", ", overloaded, " of them overloaded"), ".");
  }
  return text;
}

std::string_view MethodOf(Reason reason) {
  switch (reason) {
    case Reason::kPrefixHit:
    case Reason::kKvAware:
      return "cache_hit";
    case Reason::kSessionHash:
    case Reason::kBodyHash:
    case Reason::kPrefixHash:
    case Reason::kPinned:
    case Reason::kSticky:
      return "sticky";
    case Reason::kFallback:
    case Reason::kFailover:
      return "fallback";
    default:
      return "load";
  }
}

std::string CacheStatus(const Decision& decision) {
  if (decision.unit == MatchUnit::kNone) return {};
  return Concat(decision.matched, "/", decision.total, " ", MatchUnitName(decision.unit));
}

std::string CandidatesLine(const Decision& decision, size_t count) {
  if (decision.explanation == nullptr) return {};
  std::string line;
  for (const Candidate* candidate : InOrder(decision)) {
    if (count-- == 0) break;
    if (!line.empty()) line += ", ";
    line += Concat(candidate->url, " load=", candidate->open_requests);
    if (candidate->matched) line += Concat(" matched=", *candidate->matched);
  }
  return line;
}

}  // namespace vllm_router
