// KvTrust: how far the KV events of a worker tell what its cache holds.
//
//   kOff        no source of events                                   routing uses the learned index
//   kWaiting    a source, and nothing applied yet                     learned
//   kExact      every batch since the engine started or was cleared   events
//   kSettled    history is missing; known blocks fill the cache       events
//   kPartial    history or a batch is missing                         the larger of events and learned
//   kSilent     it computes new blocks and publishes nothing          learned
//   kMismatch   most of its events cannot be used                     learned
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace vllm_router {

enum class KvTrust : uint8_t { kOff, kWaiting, kExact, kSettled, kPartial, kSilent, kMismatch };
inline constexpr int kKvTrustCount = 7;

constexpr std::string_view KvTrustName(KvTrust trust) {
  constexpr std::array<std::string_view, kKvTrustCount> kNames = {"off",     "waiting", "exact",   "settled",
                                                                  "partial", "silent",  "mismatch"};
  return kNames[static_cast<size_t>(trust)];
}

// Events alone tell what the worker holds.
constexpr bool IsComplete(KvTrust trust) { return trust == KvTrust::kExact || trust == KvTrust::kSettled; }
// What events tell is true, complete or not.
constexpr bool IsUsable(KvTrust trust) { return IsComplete(trust) || trust == KvTrust::kPartial; }

// The one that deserves less. A worker with several sources gets the least of theirs.
constexpr KvTrust LessTrusted(KvTrust a, KvTrust b) {
  constexpr std::array<uint8_t, kKvTrustCount> kRanks = {0, 3, 6, 5, 4, 1, 2};
  return kRanks[static_cast<size_t>(a)] < kRanks[static_cast<size_t>(b)] ? a : b;
}

}  // namespace vllm_router
