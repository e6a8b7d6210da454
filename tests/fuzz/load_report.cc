// What a hostile worker says of its load and cache: numbers within the limits or none, the same at every cut into lines.
#include <string>

#include <boost/json.hpp>

#include "base/limits.h"
#include "fuzz.h"
#include "proxy/client/load_report.h"

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view text = AsText(data, size);
  const auto fits = [](std::optional<ReportedLoad> load) {
    return !load ||
           (load->waiting >= 0 && load->waiting <= load->requests && load->requests <= kMostReportedLoad);
  };
  const std::optional<ReportedLoad> all = LoadInMetrics(text, std::nullopt);
  FUZZ_CHECK(fits(all));
  FUZZ_CHECK(fits(LoadInMetrics(text, 0)));
  FUZZ_CHECK(fits(LoadInGetLoad(text)));
  FUZZ_CHECK(fits(LoadInLoad(text)));
  const auto holds = [](std::optional<ReportedCache> cache) {
    return !cache ||
           (cache->tokens > 0 && cache->tokens <= kMostCacheTokens && cache->block_tokens <= kMaxBlockSize);
  };
  const std::optional<ReportedCache> cache = CacheInMetrics(text, std::nullopt);
  FUZZ_CHECK(holds(cache));
  FUZZ_CHECK(holds(CacheInMetrics(text, 0)));
  // Lines that say nothing change nothing.
  const std::string more = "# HELP x\n\nvllm:other 1\n" + std::string(text) + "\n#";
  FUZZ_CHECK(LoadInMetrics(more, std::nullopt) == all);
  FUZZ_CHECK(CacheInMetrics(more, std::nullopt) == cache);
  return 0;
}
