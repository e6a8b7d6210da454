#include "events/kv_feed.h"

#include <algorithm>
#include <iterator>

namespace vllm_router {

bool KvFeed::TakeKind(const std::vector<KvSource>& all, KvSourceKind kind, std::vector<KvSource>* known) {
  const auto is_mine = [kind](const KvSource& source) { return source.kind == kind; };
  size_t same = 0;
  const bool differs = std::ranges::any_of(all, [&](const KvSource& source) {
    return is_mine(source) && (same == known->size() || !(source == (*known)[same++]));
  });
  if (!differs && same == known->size()) return false;
  known->clear();
  std::ranges::copy_if(all, std::back_inserter(*known), is_mine);
  return true;
}

}  // namespace vllm_router
