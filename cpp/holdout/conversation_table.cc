#include "holdout/conversation_table.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace vllm_router {
namespace {

std::optional<double> LogOf(const std::optional<float>& seconds) {
  constexpr double kLeast = 1e-6;
  if (!seconds) return std::nullopt;
  return std::log(std::max(kLeast, static_cast<double>(*seconds)));
}

}  // namespace

// Turns come in the order of their ends, so the first turn may come after the second.
void ConversationTable::Add(const Turn& turn, std::vector<ClosedConversation>* closed) {
  if (counted_.contains(turn.conversation)) return;
  const auto [found, is_new] = open_.try_emplace(turn.conversation);
  if (is_new) {
    order_.push_back({.conversation = turn.conversation});
    found->second = std::prev(order_.end());
  } else {
    order_.splice(order_.end(), order_, found->second);
  }
  const Order::iterator at = found->second;
  Open& open = *at;
  open.last_ns = std::max(open.last_ns, turn.end_ns);
  ClosedConversation& sums = open.sums;
  std::optional<double> time = LogOf(turn.first_token_s);
  if (is_new || turn.begin_ns < open.first_begin_ns) {
    open.first_begin_ns = turn.begin_ns;
    sums.first_body_bytes = turn.body_bytes;
    if (is_new) {
      open.first = std::exchange(time, std::nullopt);
    } else {
      std::swap(open.first, time);
    }
  }
  if (time) {
    open.later += *time;
    ++open.timed;
  }
  sums.is_held_out = turn.is_held_out;
  sums.has_failed |= turn.has_failed;
  ++sums.turns;
  if (turn.prompt_tokens && turn.cached_tokens && *turn.prompt_tokens != 0) {
    sums.prompt_tokens += *turn.prompt_tokens;
    sums.cached_tokens += std::min(*turn.cached_tokens, *turn.prompt_tokens);
    ++sums.reporting;
  }
  if (sums.turns == kMostTurns) Close(at, closed);
  if (order_.size() > limits_.open) Close(order_.begin(), closed);
}

void ConversationTable::CloseIdle(int64_t now_ns, std::vector<ClosedConversation>* closed) {
  while (!order_.empty() && now_ns - order_.front().last_ns >= limits_.silence_ns)
    Close(order_.begin(), closed);
}

void ConversationTable::Close(Order::iterator conversation, std::vector<ClosedConversation>* closed) {
  Open& open = *conversation;
  open.sums.first_turn_log_s = open.first;
  if (open.timed != 0) open.sums.later_turns_log_s = open.later / open.timed;
  closed->push_back(open.sums);
  counted_.insert(open.conversation);
  counted_order_.push_back(open.conversation);
  if (counted_order_.size() > limits_.remembered) {
    counted_.erase(counted_order_.front());
    counted_order_.pop_front();
  }
  open_.erase(open.conversation);
  order_.erase(conversation);
}

}  // namespace vllm_router
