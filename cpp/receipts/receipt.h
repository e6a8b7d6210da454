// Receipt: what one routing decision expected, and what came of it, as the ring keeps it: a plain value without pointers.
// Texts that repeat are numbers of ReceiptLog (receipt_log.h), workers are ids.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string_view>

#include "policy/decision.h"

namespace vllm_router {

struct Receipt {
  static constexpr uint32_t kNone = UINT32_MAX;  // of a number, or of a worker
  static constexpr size_t kLongestId = 80;       // of a longer request id the beginning is kept

  int64_t wall_us = 0;      // Unix time of the request's head
  uint64_t id_hash = 0;     // of the whole request id
  uint32_t worker = kNone;  // WorkerId
  uint32_t best_worker = kNone;
  uint32_t prefill_worker = kNone;
  // Tokens; kNone: not known, or the policy matches nothing.
  uint32_t predicted = kNone;
  uint32_t best = kNone;
  uint32_t reported = kNone;
  uint32_t prompt = kNone;
  // Loads when it was decided.
  uint32_t open = 0;
  uint32_t best_open = 0;
  uint32_t queued_tokens = 0;
  // Microseconds; kNone: it did not get there.
  uint32_t queue_us = 0;
  uint32_t decision_us = kNone;
  uint32_t first_token_us = kNone;
  uint32_t total_us = kNone;
  uint32_t pd_uncached = 0;
  uint32_t pd_saved = 0;
  uint32_t candidates = 0;  // the number of their list; 0: there is none
  uint32_t tenant = 0;      // the number of its name; 0: none
  // Texts.
  uint16_t model = 0;
  uint16_t policy = 0;
  uint16_t route = 0;
  uint16_t end = 0;
  uint16_t priority_class = 0;
  uint16_t status = 0;  // 0: the client got none
  Reason reason = Reason::kRandom;
  Arm arm = Arm::kPolicy;  // never kNone
  uint8_t attempts = 0;
  uint8_t id_size = 0;
  std::array<char, kLongestId> id{};

  std::string_view request_id() const { return {id.data(), std::min<size_t>(id_size, kLongestId)}; }
  // The error of the prediction; 0 if there was none, or the engine did not say.
  uint32_t miss_tokens() const {
    return predicted == kNone || reported == kNone || predicted <= reported ? 0 : predicted - reported;
  }
  uint32_t foregone_tokens() const { return predicted == kNone || best <= predicted ? 0 : best - predicted; }
};
static_assert(sizeof(Receipt) == 184);  // with its sequence number three cache lines

// A worker that was compared.
struct ReceiptCandidate {
  uint32_t worker = Receipt::kNone;
  uint32_t open = 0;
  uint32_t cached = Receipt::kNone;  // tokens
  float cost = 0;
  bool has_cost = false;
};

}  // namespace vllm_router
