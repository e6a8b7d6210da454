#include "routing/json_scanner.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kBlock = 32;

// What matters inside a container. In ASCII, bit 0x20 is all that parts [ from { and ] from }.
constexpr bool IsStructure(unsigned char c) { return c == '"' || (c | 0x20) == '{' || (c | 0x20) == '}'; }

// Text without any is passed over in blocks, which compilers turn into vector instructions.
size_t NextStructure(std::string_view text, size_t at) {
  for (const size_t near = std::min(at + kBlock, text.size()); at < near; ++at) {
    if (IsStructure(static_cast<unsigned char>(text[at]))) return at;
  }
  while (at + kBlock <= text.size()) {
    std::array<unsigned char, kBlock> bytes;
    std::memcpy(bytes.data(), text.data() + at, kBlock);
    unsigned char any = 0;
    for (const unsigned char c : bytes) any |= static_cast<unsigned char>(IsStructure(c));
    if (any != 0) break;
    at += kBlock;
  }
  while (at < text.size() && !IsStructure(static_cast<unsigned char>(text[at]))) ++at;
  return at;
}

bool EndsScalar(char c) {
  return JsonScanner::IsBlank(c) || c == ',' || c == ':' || IsStructure(static_cast<unsigned char>(c));
}

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::optional<uint32_t> FourHex(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  uint32_t code = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const int digit = HexDigit(text[i]);
    if (digit < 0) return std::nullopt;
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  return code;
}

// Steps over digits; true if there was one.
bool TakeDigits(std::string_view* text) {
  const size_t digits = std::min(text->find_first_not_of("0123456789"), text->size());
  text->remove_prefix(digits);
  return digits > 0;
}

}  // namespace

bool JsonScanner::SkipString() {
  ++at_;
  while (at_ < text_.size()) {
    const void* const found = std::memchr(text_.data() + at_, '"', text_.size() - at_);
    if (found == nullptr) break;
    const auto quote = static_cast<size_t>(static_cast<const char*>(found) - text_.data());
    size_t backslashes = 0;
    while (quote > at_ + backslashes && text_[quote - 1 - backslashes] == '\\') ++backslashes;
    at_ = quote + 1;
    if (backslashes % 2 == 0) return true;
  }
  at_ = text_.size();
  return false;
}

bool JsonScanner::SkipValue() {
  const char first = Peek();
  if (first == '"') return SkipString();
  return first == '{' || first == '[' ? SkipContainer() : SkipScalar();
}

bool JsonScanner::SkipContainer() {
  size_t depth = 0;
  while ((at_ = NextStructure(text_, at_)) < text_.size()) {
    if (text_[at_] == '"') {
      if (!SkipString()) return false;
      continue;
    }
    const bool opens = text_[at_] == '{' || text_[at_] == '[';
    ++at_;
    if (opens) {
      ++depth;
    } else if (--depth == 0) {
      return true;
    }
  }
  return false;
}

bool JsonScanner::SkipScalar() {
  const size_t begin = at_;
  while (at_ < text_.size() && !EndsScalar(text_[at_])) ++at_;
  return at_ > begin && at_ < text_.size();
}

std::optional<std::string> UnescapedJson(std::string_view text) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  size_t i = std::min(text.find('\\'), text.size());
  std::string out(text.substr(0, i));
  for (; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (const size_t plain = kEscapes.find(text[i]); plain != std::string_view::npos) {
      out.push_back(kMeanings[plain]);
      continue;
    }
    if (text[i] != 'u') return std::nullopt;
    std::optional<uint32_t> code = FourHex(text, i + 1);
    if (!code || (*code >= 0xdc00 && *code < 0xe000)) return std::nullopt;
    i += 4;
    if (*code >= 0xd800 && *code < 0xdc00) {
      if (text.substr(i + 1, 2) != "\\u") return std::nullopt;
      const std::optional<uint32_t> low = FourHex(text, i + 3);
      if (!low || *low < 0xdc00 || *low >= 0xe000) return std::nullopt;
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
      i += 6;
    }
    AppendUtf8(*code, &out);
  }
  return out;
}

bool IsJsonNumber(std::string_view token) {
  if (token.starts_with('-')) token.remove_prefix(1);
  if (token.size() > 1 && token[0] == '0' && HexDigit(token[1]) >= 0 && token[1] <= '9') return false;
  if (!TakeDigits(&token)) return false;
  if (token.starts_with('.')) {
    token.remove_prefix(1);
    if (!TakeDigits(&token)) return false;
  }
  if (token.starts_with('e') || token.starts_with('E')) {
    token.remove_prefix(1);
    if (token.starts_with('+') || token.starts_with('-')) token.remove_prefix(1);
    if (!TakeDigits(&token)) return false;
  }
  return token.empty();
}

std::optional<std::vector<std::string_view>> JsonElements(std::string_view array, size_t limit) {
  std::vector<std::string_view> elements;
  JsonScanner scanner(array);
  if (!scanner.Take('[')) return std::nullopt;
  if (scanner.Take(']')) return elements;
  do {
    if (elements.size() == limit) return elements;
    scanner.SkipBlanks();
    const size_t begin = scanner.at();
    if (!scanner.SkipValue()) return std::nullopt;
    elements.push_back(array.substr(begin, scanner.at() - begin));
  } while (scanner.Take(','));
  if (!scanner.Take(']')) return std::nullopt;
  return elements;
}

}  // namespace vllm_router
