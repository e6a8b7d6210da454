// PageQuery: which keys of one prompt to query in a shared pool, in which order, and what the responses mean.
// No socket, no clock.
//
//   pages     0 ......... 63 | 64 ....... 127 | 128 ....      groups of 64 pages, in order
//   requests  0            1   2                              at most 4 in flight; each of at most 64 keys
//
// Of each page only the first object is queried. After a group without a hit no further one is begun: what is
// behind it is of little use. Then the edges are verified: for the last page of each range, its other objects,
// and those that only the last pages of a hit have. One that is missing ends the range a page earlier. With
// Verify::kAll every object of every page is queried, and groups are as much smaller.
//
//   PageQuery query(layout, pages, PageQuery::Verify::kEdges);
//   while (auto request = query.Next()) { send request->keys; … }
//   query.Take(request->number, there); … query.Ranges();      at any time: what is known so far
//
// Cost: O(pages + keys) in all, Ranges() O(pages). One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "index/shared_hits.h"
#include "shared_pool/page_layout.h"
#include "shared_pool/page_results.h"

namespace vllm_router {

class PageQuery {
 public:
  static constexpr size_t kGroupKeys = 64;  // some 6 KB of a URL
  static constexpr size_t kMaxInFlight = 4;

  enum class Verify : uint8_t { kEdges, kAll };

  PageQuery(std::shared_ptr<const PageLayout> layout, std::vector<Digest256> pages, Verify verify);

  // What is known of a page already; before the first Next().
  void Know(size_t page, PageState state) { states_[page] = state; }

  struct Request {
    uint32_t number;
    std::vector<std::string> keys;
  };
  // The next request to send; nullopt: none for now.
  std::optional<Request> Next();
  // The response to a request: for each key, it is there.
  void Take(uint32_t number, const std::vector<bool>& there);
  // There is no response. Nothing further is requested.
  void Fail(uint32_t number);
  // Nothing is in flight, and Next() has found nothing to send.
  bool done() const { return in_flight_.empty() && step_ == Step::kDone; }

  size_t size() const { return pages_.size(); }
  const Digest256& page(size_t i) const { return pages_[i]; }
  PageState state(size_t i) const { return states_[i]; }
  const PageLayout& layout() const { return *layout_; }

  // Runs of pages that are there.
  std::vector<BlockRange> Ranges() const;

 private:
  enum class Step : uint8_t { kPages, kEdges, kDone };
  // A key, and the page whose state depends on it: the same page, but for trailing objects.
  struct Wanted {
    uint32_t page;
    uint32_t suffix;  // of the layout; trailing ones follow the others
    uint32_t subject;
  };
  struct Open {
    uint32_t left = 0;  // keys of a page, or pages of a group, without a response
    bool missing = false;
    bool hit = false;
  };

  bool first_is_all() const { return layout_->suffixes.size() == 1 || verify_ == Verify::kAll; }
  void BeginGroup();
  void BeginEdges();
  void Want(uint32_t page, uint32_t suffix, uint32_t subject);
  void Settle(uint32_t subject, bool missing);
  const std::string& SuffixOf(const Wanted& key) const;

  const std::shared_ptr<const PageLayout> layout_;
  const std::vector<Digest256> pages_;
  const Verify verify_;
  const size_t group_pages_;
  std::vector<PageState> states_;
  Step step_ = Step::kPages;
  size_t begun_ = 0;      // pages whose groups have begun
  bool stopped_ = false;  // no further group is begun
  bool failed_ = false;
  std::map<uint32_t, Open> open_pages_;
  std::map<size_t, Open> open_groups_;
  std::vector<Wanted> to_send_;
  size_t sent_ = 0;  // of them
  std::map<uint32_t, std::vector<Wanted>> in_flight_;
  uint32_t next_number_ = 0;
};

// Ranges of pages as ranges of blocks, of which the prompt has `blocks`: only those that lie in pages whole.
// One size is a multiple of the other.
std::vector<BlockRange> BlocksOfPages(
    const std::vector<BlockRange>& pages, uint32_t page_tokens, uint32_t block_tokens, size_t blocks);

}  // namespace vllm_router
