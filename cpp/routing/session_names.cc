#include "routing/session_names.h"

namespace vllm_router {
namespace {

// OpenCode's and Codex's.
constexpr std::array<std::string_view, 2> kParentHeaders = {
    "x-parent-session-id", "x-codex-parent-thread-id"};
// Claude Code's and Codex's, whose first thread has the name of its session.
constexpr std::array<std::string_view, 2> kAgentHeaders = {"x-claude-code-agent-id", "thread-id"};

template <size_t N>
constexpr uint64_t LengthsOf(const std::array<std::string_view, N>& names) {
  uint64_t lengths = 0;
  for (const std::string_view name : names) lengths |= LengthBit(name.size());
  return lengths;
}

constexpr uint64_t kLengths =
    LengthsOf(kSessionHeaders) | LengthsOf(kParentHeaders) | LengthsOf(kAgentHeaders);

}  // namespace

SessionNames SessionNamesIn(std::span<const HeaderField> headers) {
  BestHeader session, parent, agent;
  for (const HeaderField& header : headers) {
    if ((kLengths & LengthBit(header.name.size())) == 0) continue;
    if (session.Take(header, kSessionHeaders, kMaxSessionNameBytes)) continue;
    if (parent.Take(header, kParentHeaders, kMaxSessionNameBytes)) continue;
    agent.Take(header, kAgentHeaders, kMaxSessionNameBytes);
  }
  if (agent.value == session.value) agent.value = {};
  return {.session = session.value, .parent = parent.value, .agent = agent.value};
}

}  // namespace vllm_router
