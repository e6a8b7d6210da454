// What a hostile master or worker says of a shared pool: as many results as keys, and layouts within the limits.
#include <boost/json.hpp>

#include "fuzz.h"
#include "shared_pool/pool_report.h"

namespace {

void CheckPool(const vllm_router::PagePool& pool) {
  using namespace vllm_router;
  const StatusOr<std::vector<PageLayout>> layouts = LayoutsOf(pool);
  FUZZ_CHECK(layouts.ok() && !layouts->empty() && layouts->size() <= 4);
  for (const PageLayout& layout : *layouts) {
    FUZZ_CHECK(!layout.suffixes.empty());
    FUZZ_CHECK(layout.suffixes.size() + layout.trailing_suffixes.size() <= kMaxPageObjects);
    FUZZ_CHECK(layout.trailing_pages <= kMaxTrailingPages && layout.form.tokens != 0);
    for (const std::string& suffix : layout.suffixes) {
      for (const char c : layout.KeyOf({}, suffix))
        FUZZ_CHECK(std::string_view("&#%+,?/ \r\n").find(c) == std::string_view::npos);
    }
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace vllm_router;
  const std::string_view text = AsText(data, size);
  const std::vector<std::string> keys = {"K1", "K2", ""};
  const StatusOr<std::vector<bool>> there = KeysInReply(text, keys);
  FUZZ_CHECK(!there.ok() || there->size() == keys.size());
  if (const StatusOr<PagePool> pool = PoolInLayout(text); pool.ok()) CheckPool(*pool);
  const StatusOr<std::optional<PagePool>> info = PoolInServerInfo(text);
  if (info.ok() && *info) CheckPool(**info);
  return 0;
}
