#include "http/via.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kRouterPrefix = "vllm-router-";

// Takes one hop, up to its comma, off the front. A comma within a comment does not end a hop.
std::string_view TakeHop(std::string_view* list) {
  size_t end = 0;
  for (int depth = 0; end < list->size() && (depth > 0 || (*list)[end] != ','); ++end) {
    const char c = (*list)[end];
    if (c == '\\' && depth > 0 && end + 1 < list->size()) {
      ++end;
    } else if (c == '(') {
      ++depth;
    } else if (c == ')' && depth > 0) {
      --depth;
    }
  }
  const std::string_view hop = TrimBlanks(list->substr(0, end));
  list->remove_prefix(std::min(end + 1, list->size()));
  return hop;
}

// The second word of "1.1 name (comment)".
std::string_view NameOf(std::string_view hop) {
  const size_t blank = hop.find_first_of(" \t");
  if (blank == std::string_view::npos) return {};
  const std::string_view name = TrimBlanks(hop.substr(blank));
  return name.substr(0, name.find_first_of(" \t("));
}

}  // namespace

Hops ReadVia(std::span<const std::string_view> values, std::string_view own_name) {
  Hops hops;
  for (std::string_view list : values) {
    while (!list.empty()) {
      const std::string_view name = NameOf(TakeHop(&list));
      if (!EqualsIgnoreCase(name.substr(0, kRouterPrefix.size()), kRouterPrefix)) continue;
      ++hops.routers;
      if (EqualsIgnoreCase(name, own_name)) hops.own = true;
    }
  }
  return hops;
}

std::string HopName(uint64_t random) { return Concat(kRouterPrefix, Hex16(random)); }

}  // namespace vllm_router
