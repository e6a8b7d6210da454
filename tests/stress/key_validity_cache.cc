// Lanes look up verdicts on keys while others are remembered and forgotten: what is found was said, and there are
// never more than the limit.
#include "base/random.h"
#include "proxy/security/key_validator.h"
#include "stress.h"

int main() {
  using namespace vllm_router;
  constexpr int kThreads = 4;
  constexpr size_t kMost = 50;
  KeyValidityCache verdicts(1000, 100, kMost);
  RunTogether(kThreads, [&](int thread) {
    Random random(static_cast<uint64_t>(thread) + 1);
    for (int64_t now = 0; now < 20'000; ++now) {
      const uint64_t number = random.Below(200);
      const Digest256 key = Sha256({std::to_string(number)});
      KeyVerdict right;
      right.validity = number % 2 == 0 ? KeyValidity::kYes : KeyValidity::kNo;
      if (number % 4 == 0)
        right.grant = std::make_shared<const KeyGrant>(KeyGrant{.tenant = std::to_string(number)});
      if (random.Below(4) == 0) verdicts.Remember(key, right, now);
      const std::optional<KeyVerdict> found = verdicts.Find(key, now);
      STRESS_CHECK(!found.has_value() || found->validity == right.validity);
      STRESS_CHECK(!found.has_value() || (found->grant == nullptr) == (right.grant == nullptr));
      STRESS_CHECK(!found.has_value() || found->grant == nullptr || *found->grant == *right.grant);
      STRESS_CHECK(verdicts.size() <= 2 * kMost);
    }
  });
}
