#include "holdout/arm_chooser.h"

#include <algorithm>

#include "hashing/sha256.h"

namespace vllm_router {
namespace {

constexpr uint64_t kArms = 2;  // the domain of these names

}  // namespace

KeyedHash::Key HoldoutKey(std::string_view secret) {
  const Digest256 digest = Sha256({std::string_view("vllm-router holdout"), secret});
  KeyedHash::Key key;
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

Arm ArmChooser::Of(uint64_t conversation) {
  return names_.NameOf(kArms, conversation) % kHoldoutParts < parts_ ? Arm::kHoldout : Arm::kPolicy;
}

}  // namespace vllm_router
