#include "routing/session_names.h"

namespace vllm_router {
namespace {

// OpenCode's and Codex's.
constexpr std::array<std::string_view, 2> kParentHeaders = {
    "x-parent-session-id", "x-codex-parent-thread-id"};
// Claude Code's and Codex's, whose first thread has the name of its session.
constexpr std::array<std::string_view, 2> kAgentHeaders = {"x-claude-code-agent-id", "thread-id"};

// Upper and lower case have the same bit; so do some other characters, which is no harm.
constexpr uint32_t LetterBit(char letter) { return uint32_t{1} << (static_cast<unsigned char>(letter) & 31); }

// By the length of a name, the last letters of those that count: nearly all other headers are passed over at once, also
// Content-Type, which is as long as X-Session-ID.
constexpr size_t kLengths = 32;
constexpr std::array<uint32_t, kLengths> kLastLetters = [] {
  std::array<uint32_t, kLengths> letters{};
  const auto add = [&letters](const auto& names) {
    for (const std::string_view name : names) letters.at(name.size()) |= LetterBit(name.back());
  };
  add(kSessionHeaders);
  add(kParentHeaders);
  add(kAgentHeaders);
  return letters;
}();

bool MayCount(std::string_view name) {
  return name.size() < kLengths && (kLastLetters[name.size()] & LetterBit(name.back())) != 0;
}

}  // namespace

SessionNames SessionNamesIn(std::span<const HeaderField> headers) {
  BestHeader session, parent, agent;
  for (const HeaderField& header : headers) {
    if (header.name.empty() || !MayCount(header.name)) continue;
    if (session.Take(header, kSessionHeaders, kMaxSessionNameBytes)) continue;
    if (parent.Take(header, kParentHeaders, kMaxSessionNameBytes)) continue;
    agent.Take(header, kAgentHeaders, kMaxSessionNameBytes);
  }
  if (agent.value == session.value) agent.value = {};
  return {.session = session.value, .parent = parent.value, .agent = agent.value};
}

}  // namespace vllm_router
