#include "base/utf8.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

namespace vllm_router {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

}  // namespace

size_t Utf8Size(std::string_view text) {
  const auto byte = [text](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(0);
  const size_t size = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || text.size() < size) return 0;
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  if (first == 0xe0 && byte(1) < 0xa0) return 0;
  if (first == 0xed && byte(1) > 0x9f) return 0;
  if (first == 0xf0 && byte(1) < 0x90) return 0;
  if (first == 0xf4 && byte(1) > 0x8f) return 0;
  return size;
}

char* CopyValidUtf8(std::string_view text, char* to) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  const char* from = text.data();
  const char* const end = from + text.size();
  while (from != end) {
    uint64_t eight = kHighBits;
    if (end - from >= ptrdiff_t{sizeof(eight)}) std::memcpy(&eight, from, sizeof(eight));
    const bool is_ascii = (eight & kHighBits) == 0;
    size_t size = is_ascii ? sizeof(eight) : 1;
    if (!is_ascii && (*from & 0x80) != 0) {
      size = Utf8Size({from, end});
      if (size == 0) {
        to = std::copy(kReplacement.begin(), kReplacement.end(), to);
        ++from;
        continue;
      }
    }
    std::memcpy(to, from, size);
    from += size;
    to += size;
  }
  return to;
}

}  // namespace vllm_router
