#include "http/dot_segments.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {
namespace {

// The character at `*at` for a server that decodes until nothing is encoded; moves `*at` behind it. A
// percent sign that encodes nothing is itself.
char NextDecoded(std::string_view path, size_t* at) {
  const char c = path[(*at)++];
  if (c != '%') return c;
  size_t digits = *at;
  while (path.substr(digits, 2) == "25") digits += 2;
  if (path.size() - digits < 2) return c;
  const int high = HexDigit(path[digits]);
  const int low = HexDigit(path[digits + 1]);
  if (high < 0 || low < 0) return c;
  *at = digits + 2;
  return static_cast<char>(high * 16 + low);
}

// True if some server may find that the path leaves its start. Depth is the minimum over all sets of
// separators that a server may know: a name counts once between two slashes, however many other
// separators are in it. It does not count behind a `;`, which may cut it off together with the separator
// before it. Each `..` counts.
bool MayLeave(std::string_view path) {
  int depth = 0;
  bool named = false;  // since the last slash or `..`, or cut off
  for (size_t at = 1; at <= path.size();) {
    size_t dots = 0;
    bool other = false;
    bool parameters = false;
    bool slash = true;  // ends the part, or the path does
    while (at < path.size()) {
      const bool encoded = path[at] == '%';
      const char c = NextDecoded(path, &at);
      if (c == '/' || c == '\\') {
        slash = c == '/' && !encoded;
        --at;
        break;
      }
      if (c == ';') parameters = true;
      if (parameters) continue;
      if (c == '.') {
        ++dots;
      } else {
        other = true;
      }
    }
    ++at;  // the separator's last byte, or one beyond the end
    if (!other && dots == 2) {
      if (--depth < 0) return true;
      named = false;
    } else if ((other || dots > 2) && !named) {
      ++depth;
      named = true;
    }
    named = !slash && (named || parameters);
  }
  return false;
}

// 1 for `.`, 2 for `..`, however their dots are spelled; 0 for anything else.
int PlainDots(std::string_view segment) {
  int dots = 0;
  while (!segment.empty()) {
    const bool encoded = EqualsIgnoreCase(segment.substr(0, 3), "%2e");
    if (!encoded && segment[0] != '.') return 0;
    segment.remove_prefix(encoded ? 3 : 1);
    ++dots;
  }
  return dots > 2 ? 0 : dots;
}

}  // namespace

DotSegments ResolveDotSegments(std::string_view path, std::string* resolved) {
  if (path.empty() || path[0] != '/' || path.find_first_of(".%\\") == std::string_view::npos) {
    return DotSegments::kNone;
  }
  if (MayLeave(path)) return DotSegments::kOutside;

  bool found = false;
  std::string out;
  for (size_t at = 0; at < path.size();) {  // at a slash
    const size_t end = std::min(path.find('/', at + 1), path.size());
    const int dots = PlainDots(path.substr(at + 1, end - at - 1));
    if (dots == 0) {
      out.append(path.substr(at, end - at));
    } else {
      found = true;
      if (dots == 2) out.resize(out.rfind('/'));  // MayLeave() has checked that there is one
      if (end == path.size()) out += '/';
    }
    at = end;
  }
  if (!found) return DotSegments::kNone;
  if (resolved != nullptr) *resolved = std::move(out);
  return DotSegments::kInside;
}

}  // namespace vllm_router
