// What a hostile worker says of its load: a number within the limit or none, the same at every cut into lines.
#include <string>

#include <boost/json/src.hpp>

#include "fuzz.h"
#include "proxy/load_report.h"

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
  // Lines that say nothing change nothing.
  FUZZ_CHECK(LoadInMetrics("# HELP x\n\nvllm:other 1\n" + std::string(text) + "\n#", std::nullopt) == all);
  return 0;
}
