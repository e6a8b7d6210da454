#include "policy/decision.h"

#include <array>

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, kReasonCount> kReasonNames = {
    "random",   "round_robin", "least_loaded", "power_of_two", "session_hash",  "body_hash",    "failover",
    "overflow", "prefix_hash", "prefix_hit",   "prefix_miss",  "prefix_spread", "load_balance", "lowest_cost",
    "sampled",  "kv_aware",    "sticky",       "sticky_new",   "fallback",      "pinned",       "holdout"};
static_assert(!kReasonNames.back().empty(), "a reason without a name");

constexpr std::array<std::string_view, 3> kArmNames = {"none", "policy", "holdout"};
constexpr std::array<std::string_view, 4> kMatchUnitNames = {"none", "bytes", "tokens", "blocks"};
constexpr std::array<std::string_view, 4> kEndNames = {
    "finished", "client_gone", "worker_failed", "not_sent"};

}  // namespace

std::string_view ReasonName(Reason reason) { return kReasonNames[static_cast<size_t>(reason)]; }

std::string_view ArmName(Arm arm) { return kArmNames[static_cast<size_t>(arm)]; }

std::string_view MatchUnitName(MatchUnit unit) { return kMatchUnitNames[static_cast<size_t>(unit)]; }

std::string_view EndName(Outcome::End end) { return kEndNames[static_cast<size_t>(end)]; }

std::optional<Outcome::End> EndByName(std::string_view name) {
  for (size_t i = 0; i < kEndNames.size(); ++i) {
    if (kEndNames[i] == name) return static_cast<Outcome::End>(i);
  }
  return std::nullopt;
}

}  // namespace vllm_router
