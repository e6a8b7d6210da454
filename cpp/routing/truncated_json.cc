#include "routing/truncated_json.h"

#include <algorithm>

#include "base/check.h"
#include "routing/json_scanner.h"
#include "routing/request_view.h"

namespace vllm_router {
namespace {

constexpr size_t kMostDepth = 1000;
constexpr size_t kNone = std::string_view::npos;

// Bytes of the character with this first byte.
size_t CharacterBytes(unsigned char lead) { return lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4; }

// `end` moved back to a boundary between characters.
size_t BeforeHalfCharacter(std::string_view text, size_t begin, size_t end) {
  const size_t furthest = end - begin > 3 ? end - 3 : begin;
  for (size_t i = end; i > furthest; --i) {
    const auto byte = static_cast<unsigned char>(text[i - 1]);
    if ((byte & 0xc0) == 0x80) continue;  // continues an earlier one
    return i - 1 + CharacterBytes(byte) > end ? i - 1 : end;
  }
  return end;
}

struct ScannedString {
  bool closed;
  size_t end;  // behind its quote, or where it has to be cut
};

// `begin`: behind the opening quote.
ScannedString ScanString(std::string_view text, size_t begin) {
  constexpr size_t kShort = 2;  // \n
  constexpr size_t kLong = 6;   // \u00e9
  size_t at = begin;
  size_t quote = text.find('"', at);
  size_t pair = kNone;  // an escape that is the first half of a character
  for (;;) {
    const size_t escape = text.substr(0, std::min(quote, text.size())).find('\\', at);
    if (escape == kNone) break;
    const bool second = pair != kNone && escape == pair + kLong;
    const size_t bytes = escape + 1 < text.size() && text[escape + 1] == 'u' ? kLong : kShort;
    if (escape + bytes > text.size()) return {false, second ? pair : escape};
    const bool first = bytes == kLong && !second && (text[escape + 2] == 'd' || text[escape + 2] == 'D') &&
                       std::string_view("89abAB").find(text[escape + 3]) != kNone;
    pair = first ? escape : kNone;
    at = escape + bytes;
    if (quote < at) quote = text.find('"', at);
  }
  if (quote != kNone) return {true, quote + 1};
  if (pair != kNone && pair + kLong == text.size()) return {false, pair};
  return {false, BeforeHalfCharacter(text, at, text.size())};
}

}  // namespace

std::optional<JsonRepair> CloseJson(std::string_view text) {
  std::string closers;  // of the brackets that are open, the innermost last
  size_t keep = 0;      // the text before it needs only its closers
  bool name = false;    // the next string is a member's name
  bool in_string = false;
  size_t at = text.size() - WithoutByteOrderMark(text).size();
  while (at < text.size() && JsonScanner::IsBlank(text[at])) ++at;
  if (at == text.size() || text[at] != '{') return std::nullopt;
  while (at < text.size() && !in_string) {
    const char c = text[at];
    if (c == '"') {
      const ScannedString string = ScanString(text, at + 1);
      if (!string.closed) {
        if (!name) keep = string.end;
        in_string = !name;
        break;
      }
      at = string.end;
      if (!name) keep = at;
    } else if (c == '{' || c == '[') {
      if (closers.size() == kMostDepth) return std::nullopt;
      closers.push_back(c == '{' ? '}' : ']');
      name = c == '{';
      keep = ++at;
    } else if (c == '}' || c == ']') {
      if (closers.back() != c) return std::nullopt;
      closers.pop_back();
      if (closers.empty()) return JsonRepair{.keep = text.size(), .closing = {}};
      name = false;  // a comma comes before the next one
      keep = ++at;
    } else if (c == ',') {
      name = closers.back() == '}';
      ++at;
    } else if (c == ':') {
      name = false;
      ++at;
    } else if (JsonScanner::IsBlank(c)) {
      ++at;
    } else {  // a number or a word, whose end must be seen
      while (at < text.size() && !JsonScanner::IsBlank(text[at]) &&
             std::string_view(",:]}[{\"").find(text[at]) == kNone)
        ++at;
      if (at < text.size() && !name) keep = at;
    }
  }
  std::string closing(closers.rbegin(), closers.rend());
  if (in_string) closing.insert(closing.begin(), '"');
  return JsonRepair{.keep = keep, .closing = std::move(closing)};
}

TruncatedJson::TruncatedJson(std::span<char> text) {
  constexpr size_t kRoom = kMostDepth + 1 + kBodyPadding;  // every bracket, a quote
  ROUTER_CHECK(text.size() > kRoom, "there is space to close truncated JSON");
  const std::optional<JsonRepair> repair = CloseJson({text.data(), text.size() - kRoom});
  if (!repair.has_value()) return;
  const size_t closing = repair->closing.size();
  place_ = text.subspan(repair->keep, closing + kBodyPadding);
  replaced_.assign(place_.data(), place_.size());
  repair->closing.copy(place_.data(), closing);
  std::fill_n(place_.data() + closing, kBodyPadding, ' ');
  view_ = {text.data(), repair->keep + closing};
}

TruncatedJson::~TruncatedJson() { std::copy(replaced_.begin(), replaced_.end(), place_.begin()); }

}  // namespace vllm_router
