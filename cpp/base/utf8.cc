#include "base/utf8.h"

#include <algorithm>

namespace vllm_router {

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

void AppendValidUtf8(std::string_view text, std::string* out) {
  const auto is_high = [](char c) { return static_cast<unsigned char>(c) >= 0x80; };
  while (!text.empty()) {
    const auto ascii = static_cast<size_t>(std::ranges::find_if(text, is_high) - text.begin());
    out->append(text.substr(0, ascii));
    text.remove_prefix(ascii);
    if (text.empty()) return;
    const size_t size = Utf8Size(text);
    out->append(size != 0 ? text.substr(0, size) : "\xef\xbf\xbd");
    text.remove_prefix(std::max<size_t>(size, 1));
  }
}

}  // namespace vllm_router
