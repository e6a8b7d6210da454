#include "shared_pool/page_results.h"

#include <iterator>

namespace vllm_router {

PageState PageResults::Find(const Digest256& page, int64_t now_ns) {
  const auto found = by_page_.find(page);
  if (found == by_page_.end()) return PageState::kUnknown;
  const auto entry = found->second;
  if (now_ns >= entry->until_ns) {
    by_page_.erase(found);
    entries_.erase(entry);
    return PageState::kUnknown;
  }
  entries_.splice(entries_.begin(), entries_, entry);
  return entry->state;
}

void PageResults::Store(const Digest256& page, PageState state, int64_t now_ns) {
  const int64_t until_ns = now_ns + (state == PageState::kAbsent ? kAbsentNanos : kPresentNanos);
  if (const auto found = by_page_.find(page); found != by_page_.end()) {
    *found->second = {page, state, until_ns};
    entries_.splice(entries_.begin(), entries_, found->second);
    return;
  }
  if (by_page_.size() == limit_) {
    by_page_.erase(entries_.back().page);
    entries_.splice(entries_.begin(), entries_, std::prev(entries_.end()));  // its node is used again
    entries_.front() = {page, state, until_ns};
  } else {
    entries_.push_front({page, state, until_ns});
  }
  by_page_.emplace(page, entries_.begin());
}

void PageResults::Clear() {
  by_page_.clear();
  entries_.clear();
}

}  // namespace vllm_router
