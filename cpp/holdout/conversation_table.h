// ConversationTable: the turns of each conversation, added up until it is closed: after a silence, or after kMostTurns.
// A conversation counts once: what has been closed is remembered, and later turns of it are passed over, since its arm is
// no longer a matter of chance.
//
//   turns, of any thread, in any order  -->  Add()  -->  closed conversations, each with its sums
//                                            CloseIdle(now)
//
// Memory: at most kMostOpen conversations (then the one that was silent longest is closed early), and the hashes of
// kMostRemembered that were closed. Cost: a look-up per turn. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/container/flat_hash_set.h>

#include "holdout/turn.h"

namespace vllm_router {

struct ClosedConversation {
  bool is_held_out = false;
  bool has_failed = false;
  uint32_t turns = 0;
  uint64_t first_body_bytes = 0;  // of its first request
  uint64_t prompt_tokens = 0;     // sums over the turns that report both
  uint64_t cached_tokens = 0;
  uint32_t reporting = 0;                        // turns that do
  std::optional<double> first_turn_log_s = {};   // ln of seconds, of the first turn
  std::optional<double> later_turns_log_s = {};  // mean over the later turns
};

class ConversationTable {
 public:
  static constexpr int64_t kSilenceNanos = 900'000'000'000;  // 15 minutes
  static constexpr uint32_t kMostTurns = 64;
  static constexpr size_t kMostOpen = 65'536;
  static constexpr size_t kMostRemembered = 262'144;

  // Tests have smaller limits.
  struct Limits {
    int64_t silence_ns = kSilenceNanos;
    size_t open = kMostOpen;
    size_t remembered = kMostRemembered;
  };

  ConversationTable() : ConversationTable(Limits()) {}
  explicit ConversationTable(const Limits& limits) : limits_(limits) {}

  // Conversations that are closed are appended to `closed`.
  void Add(const Turn& turn, std::vector<ClosedConversation>* closed);
  void CloseIdle(int64_t now_ns, std::vector<ClosedConversation>* closed);

  size_t open() const { return open_.size(); }

 private:
  struct Open {
    uint64_t conversation = 0;
    int64_t last_ns = 0;
    int64_t first_begin_ns = 0;
    std::optional<double> first = {};  // ln of the first turn's seconds to the first token
    double later = 0;                  // sum over the later ones
    uint32_t timed = 0;                // how many these are
    ClosedConversation sums = {};
  };
  using Order = std::list<Open>;  // the one that was silent longest first

  void Close(Order::iterator conversation, std::vector<ClosedConversation>* closed);

  const Limits limits_;
  Order order_;
  absl::flat_hash_map<uint64_t, Order::iterator> open_;
  absl::flat_hash_set<uint64_t> counted_;
  std::deque<uint64_t> counted_order_;  // the oldest first
};

}  // namespace vllm_router
