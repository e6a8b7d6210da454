#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/utf8.h"

namespace vllm_router {
namespace {

char LowerChar(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

char NameChar(char c) { return c == '-' ? '_' : LowerChar(c); }

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t substituted = diagonal + (NameChar(a[i - 1]) == NameChar(b[j - 1]) ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string AsciiLower(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), LowerChar);
  return lower;
}

bool EqualLettersIgnoreCase(std::string_view a, std::string_view b) {
  return std::equal(
      a.begin(), a.end(), b.begin(), [](char x, char y) { return LowerChar(x) == LowerChar(y); });
}

std::string_view TrimBlanks(std::string_view text) {
  constexpr std::string_view kBlanks = " \t";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::optional<uint64_t> ParseDecimal(std::string_view digits) {
  uint64_t value = 0;
  const char* end = digits.data() + digits.size();
  if (digits.empty() || digits[0] < '0' || digits[0] > '9') return std::nullopt;
  const auto [stop, error] = std::from_chars(digits.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

std::string Hex16(uint64_t value) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex(16, '0');
  for (int i = 15; i >= 0; --i, value >>= 4) hex[i] = kDigits[value & 15];
  return hex;
}

std::optional<std::string> PercentDecoded(std::string_view text, bool plus_is_space) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%') {
      if (i + 2 >= text.size() || HexDigit(text[i + 1]) < 0 || HexDigit(text[i + 2]) < 0) return std::nullopt;
      decoded.push_back(static_cast<char>(HexDigit(text[i + 1]) * 16 + HexDigit(text[i + 2])));
      i += 2;
    } else {
      decoded.push_back(plus_is_space && text[i] == '+' ? ' ' : text[i]);
    }
  }
  return decoded;
}

std::string JsonQuoted(std::string_view text) {
  std::string quoted;
  AppendJsonQuoted(text, &quoted);
  return quoted;
}

void AppendJsonQuoted(std::string_view text, std::string* out) {
  constexpr char kDigits[] = "0123456789abcdef";
  out->push_back('"');
  size_t kept = 0;  // what lies before this has been appended
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x20 && byte < 0x80 && byte != '"' && byte != '\\') {
      ++i;
      continue;
    }
    if (byte >= 0x80) {
      if (const size_t size = Utf8Size(text.substr(i)); size > 0) {
        i += size;
        continue;
      }
    }
    out->append(text.substr(kept, i - kept));
    kept = ++i;
    if (byte >= 0x80) {
      out->append("\\ufffd");
    } else if (byte >= 0x20) {
      const char escaped[] = {'\\', static_cast<char>(byte)};
      out->append(escaped, sizeof escaped);
    } else {
      const char escaped[] = {'\\', 'u', '0', '0', kDigits[byte >> 4], kDigits[byte & 15]};
      out->append(escaped, sizeof escaped);
    }
  }
  out->append(text.substr(kept)).push_back('"');
}

std::string Quoted(std::string_view text) {
  constexpr size_t kMost = 200;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string quoted = "\"";
  for (const char c : text.substr(0, kMost)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7f) {
      quoted += c;
    } else {
      quoted += "\\x";
      quoted += kDigits[byte >> 4];
      quoted += kDigits[byte & 15];
    }
  }
  quoted += text.size() > kMost ? "...\"" : "\"";
  return quoted;
}

std::string_view CutAtCharacter(std::string_view text, size_t limit) {
  if (text.size() <= limit) return text;
  // Bytes 10xxxxxx continue a character, at most three per character, so text that is not UTF-8 is cut
  // there, too.
  size_t end = limit;
  for (int back = 0; back < 3 && end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80; ++back) --end;
  return text.substr(0, (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80 ? limit : end);
}

std::string_view NearestName(std::string_view name, std::span<const std::string_view> candidates) {
  std::string_view nearest;
  size_t best = name.size() / 2 + 1;
  for (const std::string_view candidate : candidates) {
    const size_t distance = EditDistance(name, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

}  // namespace vllm_router
