// SessionNames: what the headers of a request say of the conversation that it belongs to, by the names that agents and
// other routers give it.
//
//   X-Claude-Code-Session-ID: s     X-Claude-Code-Agent-ID: a      session s, agent a: a subagent, one of those that it has
//   X-Session-ID: t                 X-Parent-Session-ID: s         session t, whose parent is s
//
// Of equal names the first counts; blanks around a value are cut; a value that is empty or longer than
// kMaxSessionNameBytes is none. Pure; any thread. Cost: one pass, 2 ns per header whose name has another length.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

#include "base/header_field.h"

namespace vllm_router {

// Best first: the general one, then those of Claude Code, of Codex (three generations), of OpenCode, of Dynamo and of SMG.
inline constexpr std::array<std::string_view, 9> kSessionHeaders = {
    "x-session-id",    "x-claude-code-session-id", "session-id",
    "session_id",      "x-session-affinity",       "x-opencode-session",
    "conversation_id", "x-dynamo-session-id",      "x-smg-routing-key"};

inline constexpr size_t kMaxSessionNameBytes = 256;

// Views of the headers; empty: not named.
struct SessionNames {
  std::string_view session;
  std::string_view parent;  // another conversation, whose agent began this one
  std::string_view
      agent;  // a subagent of the session; its own conversation if that has no session of its own
};

SessionNames SessionNamesIn(std::span<const HeaderField> headers);

}  // namespace vllm_router
