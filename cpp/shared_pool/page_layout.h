// PageLayout: under which names the engines of a fleet keep the objects of a page in a Mooncake store. A
// page (hashing/page_keys.h) is one object per tensor-parallel rank, pipeline stage, and K or V:
//
//   PagePool                        objects of a page, behind prefix and key
//   tp 2                            _0_k _0_v _1_k _1_v
//   tp 2, pp 2                      _0_0_k _0_0_v _0_1_k _0_1_v _1_0_k …          rank, then stage
//   MLA                             __k
//   MLA, pp 2                       _0_k _1_k
//   pools told by the worker        their suffixes; those of trailing pages belong to the last pages only
//
// PagePool is what is known of a pool, by an operator or a worker. What it leaves open, MHA or MLA and the
// prefix (SGLang has added the model's name), makes several layouts; one of them has the pages.
//
//   for (const PageLayout& layout : LayoutsOf(pool).value()) … layout.KeyOf(page, 0) …
//
// Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "hashing/page_keys.h"

namespace vllm_router {

inline constexpr size_t kMaxPageObjects = 1024;  // of one page
inline constexpr uint32_t kMaxTrailingPages = 64;

struct PagePool {
  struct Objects {
    std::vector<std::string> suffixes;
    uint32_t trailing_pages = 0;  // 0: they belong to every page

    friend bool operator==(const Objects&, const Objects&) = default;
  };

  uint32_t page_size = 0;  // tokens
  uint32_t tp_size = 1;
  uint32_t pp_size = 1;
  uint32_t tp_lcm_size = 0;  // with split heads, where it is larger than tp_size
  bool should_split_heads = false;
  bool is_eagle = false;
  std::optional<bool> is_mla;             // nullopt: open
  std::string tag;                        // extra_backend_tag
  std::optional<std::string> key_prefix;  // instead of tag and model
  std::string model;                      // empty: not in the prefix; else it may be
  std::vector<Objects> objects;           // instead of those by size
  std::string master_host;                // empty: not told
  uint16_t master_metrics_port = 9003;    // Mooncake's default

  friend bool operator==(const PagePool&, const PagePool&) = default;
};

struct PageLayout {
  std::string prefix;
  PageForm form;
  std::vector<std::string> suffixes;           // of every page; not empty
  std::vector<std::string> trailing_suffixes;  // of the last `trailing_pages` pages of a hit
  uint32_t trailing_pages = 0;

  // Lower-case hexadecimal between prefix and suffix.
  std::string KeyOf(const Digest256& page, std::string_view suffix) const;
  // For the log: the prefix and how many objects a page has.
  std::string Describe() const;

  friend bool operator==(const PageLayout&, const PageLayout&) = default;
};

// 1 to 4 of them. InvalidArgument names a size or a name that cannot be used: a key goes into a URL as it
// is, since not every version of the master decodes it.
StatusOr<std::vector<PageLayout>> LayoutsOf(const PagePool& pool);

}  // namespace vllm_router
