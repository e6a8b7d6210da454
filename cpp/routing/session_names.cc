#include "routing/session_names.h"

#include <cstdint>

#include "base/text.h"

namespace vllm_router {
namespace {

// OpenCode's and Codex's.
constexpr std::array<std::string_view, 2> kParentHeaders = {
    "x-parent-session-id", "x-codex-parent-thread-id"};
// Claude Code's and Codex's, whose first thread has the name of its session.
constexpr std::array<std::string_view, 2> kAgentHeaders = {"x-claude-code-agent-id", "thread-id"};

constexpr uint64_t LengthBit(size_t length) { return length < 64 ? uint64_t{1} << length : 0; }

template <size_t N>
constexpr uint64_t LengthsOf(const std::array<std::string_view, N>& names) {
  uint64_t lengths = 0;
  for (const std::string_view name : names) lengths |= LengthBit(name.size());
  return lengths;
}

constexpr uint64_t kLengths =
    LengthsOf(kSessionHeaders) | LengthsOf(kParentHeaders) | LengthsOf(kAgentHeaders);

// The value of the best name so far, and the names that have been seen.
struct Found {
  std::string_view value;
  size_t rank = SIZE_MAX;
  uint32_t seen = 0;
};

template <size_t N>
bool Take(const HeaderField& header, const std::array<std::string_view, N>& names, Found* found) {
  for (size_t rank = 0; rank < N; ++rank) {
    if (header.name.size() != names[rank].size() || !EqualsIgnoreCase(header.name, names[rank])) continue;
    const uint32_t bit = uint32_t{1} << rank;
    const std::string_view value = TrimBlanks(header.value);
    const bool counts = (found->seen & bit) == 0 && !value.empty() && value.size() <= kMaxSessionNameBytes;
    found->seen |= bit;
    if (counts && rank < found->rank) {
      found->value = value;
      found->rank = rank;
    }
    return true;
  }
  return false;
}

}  // namespace

SessionNames SessionNamesIn(std::span<const HeaderField> headers) {
  Found session, parent, agent;
  for (const HeaderField& header : headers) {
    if ((kLengths & LengthBit(header.name.size())) == 0) continue;
    if (Take(header, kSessionHeaders, &session) || Take(header, kParentHeaders, &parent)) continue;
    Take(header, kAgentHeaders, &agent);
  }
  if (agent.value == session.value) agent.value = {};
  return {.session = session.value, .parent = parent.value, .agent = agent.value};
}

}  // namespace vllm_router
