// ArmChooser: which conversations are held out of the policy. A conversation's arm follows from its hash and a secret, so
// it is the same in all its turns, after a restart, and at each router with that secret; without the secret nobody can
// name a conversation that is held out.
//
//   held out  <=>  keyed hash of the conversation mod 10,000  <  100 x percent
//
// One thread (hashing/keyed_hash.h).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "hashing/keyed_hash.h"
#include "policy/decision.h"

namespace vllm_router {

// The policies that may route what is held out: they need no memory, no key, and no plan of the fleet, which is the policy's.
inline constexpr std::array<std::string_view, 3> kHoldoutBaselines = {"least_load", "power_of_two", "random"};

// Of 10,000 conversations so many are held out: a percentage in hundredths, to the nearest.
constexpr uint32_t kHoldoutParts = 10'000;
constexpr uint32_t HoldoutParts(double percent) { return static_cast<uint32_t>(percent * 100 + 0.5); }

// From a secret of any length.
KeyedHash::Key HoldoutKey(std::string_view secret);

class ArmChooser {
 public:
  ArmChooser(const KeyedHash::Key& key, uint32_t parts) : names_(key), parts_(parts) {}

  // kPolicy or kHoldout.
  Arm Of(uint64_t conversation);

 private:
  KeyedHash names_;
  const uint32_t parts_;
};

}  // namespace vllm_router
