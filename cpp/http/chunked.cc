#include "http/chunked.h"

#include <algorithm>

#include "base/limits.h"
#include "base/text.h"
#include "http/char_class.h"
#include "http/head.h"

namespace vllm_router {
namespace {

constexpr std::string_view kAfterSize = "A chunk size is followed by neither CRLF nor an extension.";
constexpr std::string_view kLongExtension = "A chunk extension is longer than 256 bytes.";

bool IsBlank(char c) { return c == ' ' || c == '\t'; }

}  // namespace

ChunkedScanner::Step ChunkedScanner::Bad(size_t used, std::string_view why) {
  state_ = State::kBad;
  error_ = why;
  return {Event::kBad, used, {}};
}

bool ChunkedScanner::at_chunk_edge() const { return state_ == State::kSizeFirst || state_ == State::kDone; }

// One byte of a chunk extension, except the CR at its end; false if it is not allowed there.
bool ChunkedScanner::Extension(char c) {
  if (!Is(c, kVisibleChar)) return false;
  switch (state_) {
    case State::kExtNameStart:
      if (IsBlank(c)) return true;
      state_ = State::kExtName;
      return Is(c, kTokenChar);
    case State::kExtName:
      if (Is(c, kTokenChar)) return true;
      [[fallthrough]];
    case State::kExtNameBlank:
      if (c == ';') {
        state_ = State::kExtNameStart;
      } else if (c == '=') {
        state_ = State::kExtValueStart;
      } else {
        state_ = State::kExtNameBlank;
        return IsBlank(c);
      }
      return true;
    case State::kExtValueStart:
      if (IsBlank(c)) return true;
      state_ = c == '"' ? State::kExtQuoted : State::kExtToken;
      return c == '"' || Is(c, kTokenChar);
    case State::kExtQuoted:
      if (c == '"') state_ = State::kExtEnd;
      if (c == '\\') state_ = State::kExtEscape;
      return true;
    case State::kExtEscape:
      state_ = State::kExtQuoted;
      return true;
    case State::kExtToken:
      if (Is(c, kTokenChar)) return true;
      [[fallthrough]];
    default:  // kExtEnd, kExtEndBlank
      state_ = c == ';' ? State::kExtNameStart : State::kExtEndBlank;
      return c == ';' || IsBlank(c);
  }
}

// Trailers are dropped, so most names do not matter. Those that a careless recipient would merge into
// the head's framing, routing or connection handling are rejected.
bool ChunkedScanner::TrailerNameIsForbidden() const {
  if (name_bytes_ > kNameKept) return false;
  const std::string_view name(name_, name_bytes_);
  return name == "content-length" || name == "transfer-encoding" || name == "host" || name == "connection" ||
         name == "proxy-connection" || name == "trailer" || name == "te" || name == "upgrade" ||
         name == "authorization";
}

ChunkedScanner::Step ChunkedScanner::Feed(std::string_view input) {
  for (size_t i = 0; i < input.size(); ++i) {
    const char c = input[i];
    switch (state_) {
      case State::kSizeFirst:
      case State::kSize: {
        const int digit = HexDigit(c);
        if (digit >= 0) {
          if (++digits_ > 16) return Bad(i, "A chunk size has more than 16 digits.");
          left_ = left_ * 16 + static_cast<uint64_t>(digit);
          state_ = State::kSize;
        } else if (state_ == State::kSizeFirst) {
          return Bad(i, "A chunk does not start with its size in hexadecimal digits.");
        } else if (left_ > kMaxContentLength) {
          return Bad(i, "A chunk is longer than any body may be.");
        } else if (c == '\r') {
          state_ = State::kSizeLf;
        } else if (c == ';') {
          extension_bytes_ = 1;
          state_ = State::kExtNameStart;
        } else if (IsBlank(c) && kind_ == MessageKind::kResponse) {
          extension_bytes_ = 1;
          state_ = State::kSizeBlank;
        } else {
          return Bad(i, kAfterSize);
        }
        break;
      }
      case State::kSizeBlank:
        if (c == '\r') {
          state_ = State::kSizeLf;
        } else if (++extension_bytes_ > kMaxChunkExtensionBytes) {
          return Bad(i, kLongExtension);
        } else if (c == ';') {
          state_ = State::kExtNameStart;
        } else if (!IsBlank(c)) {
          return Bad(i, kAfterSize);
        }
        break;
      case State::kExtNameStart:
      case State::kExtName:
      case State::kExtNameBlank:
      case State::kExtValueStart:
      case State::kExtToken:
      case State::kExtQuoted:
      case State::kExtEscape:
      case State::kExtEnd:
      case State::kExtEndBlank:
        if (c == '\r' &&
            (state_ == State::kExtName || state_ == State::kExtToken || state_ == State::kExtEnd)) {
          state_ = State::kSizeLf;
        } else if (++extension_bytes_ > kMaxChunkExtensionBytes) {
          return Bad(i, kLongExtension);
        } else if (!Extension(c)) {
          return Bad(i, "A chunk extension is malformed.");
        }
        break;
      case State::kSizeLf:
        if (c != '\n') return Bad(i, "A chunk size line does not end with CRLF.");
        state_ = left_ == 0 ? State::kTrailerStart : State::kData;
        break;
      case State::kData: {
        const size_t size = static_cast<size_t>(std::min<uint64_t>(left_, input.size() - i));
        left_ -= size;
        if (left_ == 0) state_ = State::kDataCr;
        return {Event::kData, i + size, input.substr(i, size)};
      }
      case State::kDataCr:
        if (c != '\r') return Bad(i, "A chunk is longer than its size.");
        state_ = State::kDataLf;
        break;
      case State::kDataLf:
        if (c != '\n') return Bad(i, "A chunk does not end with CRLF.");
        digits_ = 0;
        state_ = State::kSizeFirst;
        break;
      case State::kTrailerStart:
        name_bytes_ = 0;
        if (c == '\r') {
          state_ = State::kFinalLf;
          break;
        }
        [[fallthrough]];
      case State::kTrailerName:
        if (++trailer_bytes_ > kMaxTrailerBytes) return Bad(i, "The trailers are larger than 8 KiB.");
        if (Is(c, kTokenChar)) {
          if (name_bytes_ < kNameKept)
            name_[name_bytes_] = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
          ++name_bytes_;
          state_ = State::kTrailerName;
        } else if (c == ':' && name_bytes_ > 0) {
          if (TrailerNameIsForbidden()) return Bad(i, "A trailer is a field that belongs into the head.");
          state_ = State::kTrailerValue;
        } else {
          return Bad(i, "A trailer line has no valid field name.");
        }
        break;
      case State::kTrailerValue:
        if (++trailer_bytes_ > kMaxTrailerBytes) return Bad(i, "The trailers are larger than 8 KiB.");
        if (c == '\r') {
          state_ = State::kTrailerLf;
        } else if (!Is(c, kValueChar)) {
          return Bad(i, "A trailer value holds a byte that is not allowed.");
        }
        break;
      case State::kTrailerLf:
        if (c != '\n') return Bad(i, "A trailer line does not end with CRLF.");
        if (++trailer_bytes_ > kMaxTrailerBytes) return Bad(i, "The trailers are larger than 8 KiB.");
        state_ = State::kTrailerStart;
        break;
      case State::kFinalLf:
        if (c != '\n') return Bad(i, "The chunked body does not end with CRLF.");
        state_ = State::kDone;
        return {Event::kEnd, i + 1, {}};
      case State::kDone:
        return {Event::kEnd, i, {}};
      case State::kBad:
        return {Event::kBad, i, {}};
    }
  }
  if (state_ == State::kDone) return {Event::kEnd, input.size(), {}};
  if (state_ == State::kBad) return {Event::kBad, 0, {}};
  return {Event::kNeedMore, input.size(), {}};
}

}  // namespace vllm_router
