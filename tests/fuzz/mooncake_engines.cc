// Replies of a hostile bootstrap server: ranks and ids stay within their limits.
#include "disaggregation/mooncake_engines.h"

#include "fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const auto engines = ReadMooncakeEngines(AsText(data, size));
  if (!engines) return 0;
  for (const auto& [rank, id] : *engines) {
    FUZZ_CHECK(rank < kMaxMooncakeRanks);
    FUZZ_CHECK(!id.empty() && id.size() <= kMaxMooncakeEngineId);
  }
  return 0;
}
