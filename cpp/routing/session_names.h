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
#include <cstdint>
#include <span>
#include <string_view>

#include "base/header_field.h"
#include "base/text.h"

namespace vllm_router {

// Best first: the general one, then those of Claude Code, of Codex (three generations), of OpenCode, of Dynamo and of SMG.
inline constexpr std::array<std::string_view, 9> kSessionHeaders = {
    "x-session-id",    "x-claude-code-session-id", "session-id",
    "session_id",      "x-session-affinity",       "x-opencode-session",
    "conversation_id", "x-dynamo-session-id",      "x-smg-routing-key"};

inline constexpr size_t kMaxSessionNameBytes = 256;

// The value of the best of some names among the headers of a request, which are offered one by one.
struct BestHeader {
  std::string_view value;
  size_t rank = SIZE_MAX;  // its place among the names; SIZE_MAX: none has a value
  uint64_t seen =
      0;  // places of the names that were offered: of equal ones the first counts, even an empty one

  // `names`: lower case, best first, at most 64. Returns whether the header has one of them.
  template <typename Names>
  bool Take(const HeaderField& header, const Names& names, size_t max_bytes = SIZE_MAX) {
    for (size_t place = 0; place < names.size(); ++place) {
      if (header.name.size() != names[place].size() || !EqualsIgnoreCase(header.name, names[place])) continue;
      const uint64_t bit = uint64_t{1} << place;
      const std::string_view trimmed = TrimBlanks(header.value);
      const bool counts = (seen & bit) == 0 && !trimmed.empty() && trimmed.size() <= max_bytes;
      seen |= bit;
      if (counts && place < rank) {
        value = trimmed;
        rank = place;
      }
      return true;
    }
    return false;
  }
};

// A bit for each length of a name, so that most headers are passed over at once; 63 stands for all longer ones.
constexpr uint64_t LengthBit(size_t length) { return uint64_t{1} << (length < 63 ? length : 63); }

// Views of the headers; empty: not named.
struct SessionNames {
  std::string_view session;
  std::string_view parent;  // another conversation, whose agent began this one
  std::string_view
      agent;  // a subagent of the session; its own conversation if that has no session of its own
};

SessionNames SessionNamesIn(std::span<const HeaderField> headers);

}  // namespace vllm_router
