#include "continuation/id_log.h"

#include <algorithm>
#include <limits>

#include "base/text.h"
#include "routing/json_scanner.h"

namespace vllm_router {

std::optional<std::vector<uint32_t>> ReadIds(std::string_view array) {
  JsonScanner scanner(array);
  if (!scanner.Take('[')) return std::nullopt;
  std::vector<uint32_t> ids;
  if (scanner.Take(']')) return scanner.AtEnd() ? std::optional(ids) : std::nullopt;
  do {
    scanner.SkipBlanks();
    const size_t begin = scanner.at();
    size_t end = begin;
    while (end < array.size() && array[end] >= '0' && array[end] <= '9') ++end;
    const std::string_view digits = array.substr(begin, end - begin);
    const std::optional<uint64_t> id = ParseDecimal(digits);
    const bool is_spelled_so = digits == "0" || !digits.starts_with('0');
    if (!id || !is_spelled_so || *id > std::numeric_limits<uint32_t>::max()) return std::nullopt;
    if (!scanner.SkipValue() || scanner.at() != end) return std::nullopt;
    ids.push_back(static_cast<uint32_t>(*id));
  } while (scanner.Take(','));
  if (!scanner.Take(']') || !scanner.AtEnd()) return std::nullopt;
  return ids;
}

void IdLog::Truncate(size_t count) {
  bytes_.resize(PlaceOf(count));
  count_ = count;
}

std::vector<uint32_t> IdLog::Before(size_t end, size_t most) const {
  const size_t first = end - std::min(end, most);
  std::vector<uint32_t> ids;
  ids.reserve(end - first);
  ForEachFrom(PlaceOf(first), [&ids, count = end - first](uint32_t id) {
    if (ids.size() < count) ids.push_back(id);
  });
  return ids;
}

void IdLog::AppendTo(std::string* list) const {
  ForEach([list](uint32_t id) {
    if (!list->empty()) *list += ',';
    *list += Concat(uint64_t{id});
  });
}

// Where the id behind so many begins, found from the end, near which it is looked for.
size_t IdLog::PlaceOf(size_t count) const {
  size_t at = bytes_.size();
  for (size_t left = count_; left > count; --left) {
    --at;
    while (at > 0 && (static_cast<unsigned char>(bytes_[at - 1]) & kMore) != 0) --at;
  }
  return at;
}

}  // namespace vllm_router
