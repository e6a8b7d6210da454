#include "shared_pool/page_layout.h"

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxNameBytes = 512;

bool GoesIntoUrl(std::string_view text) {
  return std::ranges::all_of(text, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '.' || c == '-';
  });
}

Status CheckName(std::string_view what, std::string_view name) {
  if (name.size() <= kMaxNameBytes && GoesIntoUrl(name)) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      what, " is ", Quoted(name), "; it is part of the keys of the shared pool and must be at most ",
      kMaxNameBytes, " letters, digits, '_', '.' and '-'"));
}

Status CheckSize(std::string_view what, uint64_t size, uint64_t max) {
  if (size >= 1 && size <= max) return absl::OkStatus();
  return absl::InvalidArgumentError(
      Concat(what, " is ", size, "; it must be a whole number between 1 and ", max));
}

// By sizes. Split heads are kept as a larger fleet would: one object per rank of the least common multiple.
std::vector<std::string> SuffixesOf(const PagePool& pool, bool is_mla) {
  std::vector<std::string> suffixes;
  const bool staged = pool.pp_size > 1;
  if (is_mla) {
    for (uint32_t stage = 0; staged && stage < pool.pp_size; ++stage)
      suffixes.push_back(Concat("_", stage, "_k"));
    if (!staged) suffixes.emplace_back("__k");
    return suffixes;
  }
  const uint32_t ranks = pool.should_split_heads ? std::max(pool.tp_lcm_size, pool.tp_size) : pool.tp_size;
  for (uint32_t rank = 0; rank < ranks; ++rank) {
    for (uint32_t stage = 0; stage < pool.pp_size; ++stage) {
      const std::string place = staged ? Concat("_", rank, "_", stage) : Concat("_", rank);
      suffixes.push_back(place + "_k");
      suffixes.push_back(place + "_v");
    }
  }
  return suffixes;
}

Status Check(const PagePool& pool) {
  ROUTER_RETURN_IF_ERROR(CheckSize("page_size", pool.page_size, kMaxBlockSize));
  ROUTER_RETURN_IF_ERROR(CheckSize("tp_size", pool.tp_size, kMaxPageObjects));
  ROUTER_RETURN_IF_ERROR(CheckSize("pp_size", pool.pp_size, kMaxPageObjects));
  if (pool.tp_lcm_size != 0)
    ROUTER_RETURN_IF_ERROR(CheckSize("tp_lcm_size", pool.tp_lcm_size, kMaxPageObjects));
  const uint64_t ranks = std::max(pool.tp_size, pool.should_split_heads ? pool.tp_lcm_size : 0);
  ROUTER_RETURN_IF_ERROR(
      CheckSize("the number of objects of a page", 2 * ranks * pool.pp_size, kMaxPageObjects));
  ROUTER_RETURN_IF_ERROR(CheckName("extra_backend_tag", pool.tag));
  ROUTER_RETURN_IF_ERROR(CheckName("key_prefix", pool.key_prefix.value_or(std::string())));
  size_t objects = 0;
  for (const PagePool::Objects& part : pool.objects) {
    objects += part.suffixes.size();
    for (const std::string& suffix : part.suffixes) ROUTER_RETURN_IF_ERROR(CheckName("a suffix", suffix));
    if (part.trailing_pages > kMaxTrailingPages)
      ROUTER_RETURN_IF_ERROR(CheckSize("trailing_pages", part.trailing_pages, kMaxTrailingPages));
  }
  if (!pool.objects.empty())
    ROUTER_RETURN_IF_ERROR(CheckSize("the number of objects of a page", objects, kMaxPageObjects));
  return absl::OkStatus();
}

}  // namespace

std::string PageLayout::KeyOf(const Digest256& page, std::string_view suffix) const {
  return Concat(prefix, DigestHex(page), suffix);
}

std::string PageLayout::Describe() const {
  const size_t objects = suffixes.size() + trailing_suffixes.size();
  return Concat(
      prefix, "<page>", suffixes.front(),
      objects == 1 ? std::string() : Concat(" and ", objects - 1, " more"));
}

StatusOr<std::vector<PageLayout>> LayoutsOf(const PagePool& pool) {
  ROUTER_RETURN_IF_ERROR(Check(pool));
  std::vector<std::string> prefixes;
  if (pool.key_prefix) {
    prefixes.push_back(*pool.key_prefix);
  } else {
    const std::string tag = pool.tag.empty() ? std::string() : pool.tag + "_";
    if (!pool.model.empty()) {
      std::string model = pool.model;
      std::ranges::replace(model, '/', '-');
      ROUTER_RETURN_IF_ERROR(CheckName("the model's name", model));
      prefixes.push_back(Concat(tag, model, "_"));
    }
    prefixes.push_back(tag);
  }
  PageLayout layout{.form = {.tokens = pool.page_size, .pairs = pool.is_eagle}};
  std::vector<std::vector<std::string>> choices;
  if (!pool.objects.empty()) {
    choices.emplace_back();
    for (const PagePool::Objects& part : pool.objects) {
      std::vector<std::string>& suffixes =
          part.trailing_pages == 0 ? choices.front() : layout.trailing_suffixes;
      suffixes.insert(suffixes.end(), part.suffixes.begin(), part.suffixes.end());
      layout.trailing_pages = std::max(layout.trailing_pages, part.trailing_pages);
    }
    if (choices.front().empty()) {
      return absl::InvalidArgumentError(
          "hicache_object_layout has no pool whose objects belong to every page; name one without "
          "trailing_pages");
    }
  } else {
    if (!pool.is_mla.value_or(false)) choices.push_back(SuffixesOf(pool, /*is_mla=*/false));
    if (pool.is_mla.value_or(true)) choices.push_back(SuffixesOf(pool, /*is_mla=*/true));
  }
  std::vector<PageLayout> layouts;
  for (const std::string& prefix : prefixes) {
    for (const std::vector<std::string>& suffixes : choices) {
      layouts.push_back(layout);
      layouts.back().prefix = prefix;
      layouts.back().suffixes = suffixes;
    }
  }
  return layouts;
}

}  // namespace vllm_router
