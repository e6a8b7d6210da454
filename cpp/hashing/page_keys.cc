#include "hashing/page_keys.h"

#include <bit>
#include <string_view>

namespace vllm_router {
namespace {

static_assert(std::endian::native == std::endian::little, "ids are hashed as they are in memory");

std::string_view IdBytes(std::span<const uint32_t> ids) {
  return {reinterpret_cast<const char*>(ids.data()), ids.size_bytes()};
}

}  // namespace

size_t CountPages(const PageForm& form, size_t ids) {
  if (form.tokens == 0 || ids == 0) return 0;
  return (ids - (form.pairs ? 1 : 0)) / form.tokens;
}

void HashPages(const PageForm& form, std::span<const uint32_t> ids, std::vector<Digest256>* keys) {
  keys->clear();
  const size_t pages = CountPages(form, ids.size());
  keys->reserve(pages);
  std::vector<uint32_t> pairs;
  std::string_view before;
  for (size_t page = 0; page < pages; ++page) {
    const size_t begin = page * form.tokens;
    std::span<const uint32_t> hashed = ids.subspan(begin, form.tokens);
    if (form.pairs) {
      pairs.clear();
      for (size_t i = begin; i < begin + form.tokens; ++i) pairs.insert(pairs.end(), {ids[i], ids[i + 1]});
      hashed = pairs;
    }
    keys->push_back(Sha256({before, IdBytes(hashed)}));
    before = {reinterpret_cast<const char*>(keys->back().data()), keys->back().size()};
  }
}

}  // namespace vllm_router
