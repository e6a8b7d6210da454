#include "shared_pool/page_query.h"

#include <algorithm>
#include <utility>

namespace vllm_router {
namespace {

bool IsThere(PageState state) { return state == PageState::kFirst || state == PageState::kWhole; }

}  // namespace

PageQuery::PageQuery(std::shared_ptr<const PageLayout> layout, std::vector<Digest256> pages, Verify verify)
    : layout_(std::move(layout)),
      pages_(std::move(pages)),
      verify_(verify),
      group_pages_(
          verify == Verify::kAll ? std::max<size_t>(1, kGroupKeys / layout_->suffixes.size()) : kGroupKeys),
      states_(pages_.size(), PageState::kUnknown) {}

std::optional<PageQuery::Request> PageQuery::Next() {
  if (in_flight_.size() >= kMaxInFlight) return std::nullopt;
  while (sent_ == to_send_.size()) {
    to_send_.clear();
    sent_ = 0;
    if (step_ == Step::kPages && !stopped_ && begun_ < pages_.size()) {
      BeginGroup();
    } else if (step_ == Step::kDone || !in_flight_.empty()) {
      return std::nullopt;
    } else if (step_ == Step::kPages && !failed_) {
      step_ = Step::kEdges;
      BeginEdges();
    } else {
      step_ = Step::kDone;
    }
  }
  const size_t count = std::min(kGroupKeys, to_send_.size() - sent_);
  Request request{.number = next_number_++, .keys = {}};
  std::vector<Wanted>& wanted = in_flight_[request.number];
  for (; wanted.size() < count; ++sent_) {
    wanted.push_back(to_send_[sent_]);
    request.keys.push_back(layout_->KeyOf(pages_[wanted.back().page], SuffixOf(wanted.back())));
  }
  return request;
}

const std::string& PageQuery::SuffixOf(const Wanted& key) const {
  const size_t own = layout_->suffixes.size();
  return key.suffix < own ? layout_->suffixes[key.suffix] : layout_->trailing_suffixes[key.suffix - own];
}

void PageQuery::Want(uint32_t page, uint32_t suffix, uint32_t subject) {
  to_send_.push_back({page, suffix, subject});
  ++open_pages_[subject].left;
}

void PageQuery::BeginGroup() {
  const size_t begin = begun_;
  begun_ = std::min(begin + group_pages_, pages_.size());
  const size_t suffixes = verify_ == Verify::kAll ? layout_->suffixes.size() : 1;
  Open group;
  for (size_t page = begin; page < begun_; ++page) {
    group.hit |= IsThere(states_[page]);
    if (states_[page] != PageState::kUnknown) continue;
    ++group.left;
    for (size_t suffix = 0; suffix < suffixes; ++suffix)
      Want(static_cast<uint32_t>(page), static_cast<uint32_t>(suffix), static_cast<uint32_t>(page));
  }
  if (group.left == 0) {
    stopped_ |= !group.hit;
  } else {
    open_groups_[begin / group_pages_] = group;
  }
}

void PageQuery::BeginEdges() {
  const auto own = static_cast<uint32_t>(layout_->suffixes.size());
  const auto all = own + static_cast<uint32_t>(layout_->trailing_suffixes.size());
  for (const BlockRange& range : Ranges()) {
    const uint32_t last = range.end - 1;
    if (states_[last] == PageState::kWhole) continue;
    for (uint32_t suffix = first_is_all() ? own : 1; suffix < own; ++suffix) Want(last, suffix, last);
    const uint32_t trailing = std::min(layout_->trailing_pages, range.end - range.begin);
    for (uint32_t page = range.end - trailing; page < range.end; ++page) {
      for (uint32_t suffix = own; suffix < all; ++suffix) Want(page, suffix, last);
    }
  }
}

void PageQuery::Settle(uint32_t subject, bool missing) {
  if (step_ == Step::kEdges) {
    states_[subject] = missing ? PageState::kAbsent : PageState::kWhole;
    return;
  }
  const bool whole = first_is_all() && layout_->trailing_suffixes.empty();
  states_[subject] = missing ? PageState::kAbsent : whole ? PageState::kWhole : PageState::kFirst;
  const auto group = open_groups_.find(subject / group_pages_);
  group->second.hit |= !missing;
  if (--group->second.left > 0) return;
  stopped_ |= !group->second.hit;
  open_groups_.erase(group);
}

void PageQuery::Take(uint32_t number, const std::vector<bool>& there) {
  const auto found = in_flight_.find(number);
  if (found == in_flight_.end()) return;
  const std::vector<Wanted> wanted = std::move(found->second);
  in_flight_.erase(found);
  for (size_t i = 0; i < wanted.size(); ++i) {
    const auto open = open_pages_.find(wanted[i].subject);
    open->second.missing |= i >= there.size() || !there[i];
    if (--open->second.left > 0) continue;
    const bool missing = open->second.missing;
    open_pages_.erase(open);
    Settle(wanted[i].subject, missing);
  }
}

void PageQuery::Fail(uint32_t number) {
  in_flight_.erase(number);
  to_send_.clear();
  sent_ = 0;
  failed_ = stopped_ = true;
}

std::vector<BlockRange> PageQuery::Ranges() const {
  std::vector<BlockRange> ranges;
  for (uint32_t page = 0; page < states_.size(); ++page) {
    if (!IsThere(states_[page])) continue;
    if (ranges.empty() || ranges.back().end != page) ranges.push_back({page, page});
    ranges.back().end = page + 1;
  }
  return ranges;
}

std::vector<BlockRange> BlocksOfPages(
    const std::vector<BlockRange>& pages, uint32_t page_tokens, uint32_t block_tokens, size_t blocks) {
  std::vector<BlockRange> ranges;
  for (const BlockRange& range : pages) {
    const uint64_t begin = (uint64_t{range.begin} * page_tokens + block_tokens - 1) / block_tokens;
    const uint64_t end = std::min<uint64_t>(uint64_t{range.end} * page_tokens / block_tokens, blocks);
    if (begin < end) ranges.push_back({static_cast<uint32_t>(begin), static_cast<uint32_t>(end)});
  }
  return ranges;
}

}  // namespace vllm_router
