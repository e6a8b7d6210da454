#include "http/stream_tail.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

// Numbers may come a few events before the last: Anthropic's stream ends with message_delta, which has
// them, and message_stop, which has none.
constexpr int kEventsSearched = 4;
constexpr int kMaxDepth = 64;
// Tokens of each kind that one response may report. More is no count: it would stay in metrics for good.
constexpr uint64_t kMaxUsageTokens = 1'000'000'000;

// A cursor over JSON text. Each step moves past the element that it names and returns false if the
// element is not there.
class JsonCursor {
 public:
  explicit JsonCursor(std::string_view text) : text_(text) {}

  bool AtEnd() {
    SkipBlanks();
    return at_ == text_.size();
  }

  bool Take(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  // The contents between the quotes, escapes left as they are.
  bool String(std::string_view* contents) {
    if (!Take('"')) return false;
    const size_t begin = at_;
    for (;;) {
      at_ = text_.find('"', at_);
      if (at_ == std::string_view::npos) {
        at_ = text_.size();
        return false;
      }
      size_t backslashes = 0;
      while (at_ - backslashes > begin && text_[at_ - backslashes - 1] == '\\') ++backslashes;
      ++at_;
      if (backslashes % 2 == 0) break;
    }
    *contents = text_.substr(begin, at_ - 1 - begin);
    return true;
  }

  // A number, true, false or null.
  bool Scalar(std::string_view* word) {
    SkipBlanks();
    const size_t begin = at_;
    while (at_ < text_.size() && IsWordChar(text_[at_])) ++at_;
    *word = text_.substr(begin, at_ - begin);
    if (word->empty()) return false;
    const char first = word->front();
    return first == '-' || (first >= '0' && first <= '9') || *word == "true" || *word == "false" ||
           *word == "null";
  }

  // Calls member(name, cursor) with the cursor on each member's value. `member` must move it past the
  // value; false if it could not.
  template <typename Member>
  bool Object(Member member) {
    if (!Take('{')) return false;
    if (Take('}')) return true;
    do {
      std::string_view name;
      if (!String(&name) || !Take(':') || !member(name, *this)) return false;
    } while (Take(','));
    return Take('}');
  }

  bool SkipValue(int depth = 0) {
    if (depth == kMaxDepth) return false;
    SkipBlanks();
    std::string_view ignored;
    switch (at_ < text_.size() ? text_[at_] : '\0') {
      case '"':
        return String(&ignored);
      case '{':
        return Object([depth](std::string_view, JsonCursor& cursor) { return cursor.SkipValue(depth + 1); });
      case '[':
        Take('[');
        if (Take(']')) return true;
        do {
          if (!SkipValue(depth + 1)) return false;
        } while (Take(','));
        return Take(']');
      default:
        return Scalar(&ignored);
    }
  }

  // Behind what was read.
  std::string_view rest() const { return text_.substr(at_); }

  bool NextIs(char c) {
    SkipBlanks();
    return at_ < text_.size() && text_[at_] == c;
  }

 private:
  static bool IsWordChar(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == 'E' || c == '-' || c == '+' || c == '.';
  }

  void SkipBlanks() {
    while (at_ < text_.size() &&
           (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t')) {
      ++at_;
    }
  }

  std::string_view text_;
  size_t at_ = 0;
};

struct Usage {
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> completion_tokens;
  std::optional<uint64_t> cached_tokens;

  bool any() const { return prompt_tokens || completion_tokens || cached_tokens; }
};

// A worker may report anything; what no response can have is no count.
std::optional<uint64_t> TokensIn(std::string_view word) {
  const std::optional<uint64_t> tokens = ParseDecimal(word);
  return tokens && *tokens <= kMaxUsageTokens ? tokens : std::nullopt;
}

// `text` starts at a usage object and is moved behind it. False if it is not one, or not complete.
bool ReadUsage(std::string_view text, Usage* usage) {
  JsonCursor start(text);
  std::optional<uint64_t> input;                // Anthropic's or Responses'
  std::array<std::optional<uint64_t>, 2> more;  // Anthropic's: read from the cache, and written to it
  const bool complete = start.Object([&](std::string_view name, JsonCursor& cursor) {
    if (name == "prompt_tokens_details" || name == "input_tokens_details") {
      if (!cursor.NextIs('{')) return cursor.SkipValue();
      return cursor.Object([usage](std::string_view detail, JsonCursor& inner) {
        std::string_view word;
        if (detail != "cached_tokens" || inner.NextIs('"') || inner.NextIs('{') || inner.NextIs('[')) {
          return inner.SkipValue();
        }
        if (!inner.Scalar(&word)) return false;
        usage->cached_tokens = TokensIn(word);
        return true;
      });
    }
    std::optional<uint64_t>* number = nullptr;
    if (name == "prompt_tokens") number = &usage->prompt_tokens;
    if (name == "input_tokens") number = &input;
    if (name == "completion_tokens" || name == "output_tokens") number = &usage->completion_tokens;
    if (name == "cached_tokens") number = &usage->cached_tokens;
    if (name == "cache_read_input_tokens") number = &more[0];
    if (name == "cache_creation_input_tokens") number = &more[1];
    std::string_view word;
    if (number == nullptr || cursor.NextIs('"') || cursor.NextIs('{') || cursor.NextIs('['))
      return cursor.SkipValue();
    if (!cursor.Scalar(&word)) return false;
    *number = TokensIn(word);
    return true;
  });
  if (more[0]) usage->cached_tokens = more[0];
  if (input && !usage->prompt_tokens) {
    usage->prompt_tokens = *input + more[0].value_or(0) + more[1].value_or(0);
  }
  // None is cached that is no part of the prompt.
  if (usage->prompt_tokens && usage->cached_tokens)
    usage->cached_tokens = std::min(*usage->cached_tokens, *usage->prompt_tokens);
  return complete && usage->any();
}

// A string with its quotes. `rare` is the offset of a letter that is rare in such texts, which memrchr
// finds fast.
struct QuotedName {
  std::string_view text;
  size_t rare;
};

constexpr QuotedName kUsageName{"\"usage\"", 4};
constexpr QuotedName kMetaInfoName{"\"meta_info\"", 5};
constexpr QuotedName kAbortWord{"\"abort\"", 2};
constexpr QuotedName kFinishReasonName{"\"finish_reason\"", 7};
constexpr QuotedName kStopReasonName{"\"stop_reason\"", 5};
constexpr QuotedName kTypeName{"\"type\"", 2};
constexpr QuotedName kModelName{"\"model\"", 1};
constexpr QuotedName kStatusName{"\"status\"", 5};
constexpr QuotedName kDetailsName{"\"incomplete_details\"", 11};

// Start of the last string `name` that begins before `end`, or npos. The text before it need not be
// read, and a cut may have left half a string there, because the bytes "usage" with both quotes can only
// be a whole string token: had the first quote closed another string, a letter could not follow it; and
// were it inside a string, a backslash would precede it.
size_t FindLast(std::string_view text, const QuotedName& name, size_t end, bool cut) {
  size_t before = std::min(text.size(), end + name.rare);
  while (const void* found = ::memrchr(text.data(), name.text[name.rare], before)) {
    before = static_cast<size_t>(static_cast<const char*>(found) - text.data());
    if (before < name.rare || text.substr(before - name.rare, name.text.size()) != name.text) continue;
    const size_t at = before - name.rare;
    if (at == 0 ? !cut : text[at - 1] != '\\') return at;
  }
  return std::string_view::npos;
}

// The last member `name` that is an object with counts; the colon behind makes the string a name.
Usage FindUsage(std::string_view text, const QuotedName& name, bool cut) {
  size_t at = text.size();
  while ((at = FindLast(text, name, at, cut)) != std::string_view::npos) {
    JsonCursor colon(text.substr(at + name.text.size()));
    if (!colon.Take(':') || !colon.NextIs('{')) continue;
    const size_t object = text.find('{', at + name.text.size());
    Usage usage;
    if (ReadUsage(text.substr(object), &usage)) return usage;
  }
  return {};
}

Usage FindUsage(std::string_view text, bool cut) {
  const Usage usage = FindUsage(text, kUsageName, cut);
  return usage.any() ? usage : FindUsage(text, kMetaInfoName, cut);
}

enum class ErrorKind : uint8_t { kNone, kOther, kServer };

// Names that servers use for their own failures, letters only.
bool NamesServerError(std::string_view name) {
  constexpr std::string_view kNames[] = {
      "internalservererror", "internalerror",           "servererror", "apierror",      "overloadederror",
      "serviceunavailable",  "serviceunavailableerror", "badgateway",  "gatewaytimeout"};
  std::string letters;
  for (const char c : name.substr(0, 64)) {
    if (c >= 'A' && c <= 'Z') letters.push_back(static_cast<char>(c - 'A' + 'a'));
    if (c >= 'a' && c <= 'z') letters.push_back(c);
  }
  return std::ranges::find(kNames, letters) != std::end(kNames);
}

// 501 and 505 are about the request.
bool IsServerStatus(uint64_t status) { return status >= 500 && status != 501 && status != 505; }

// The cursor is on the value of a member `error`, and moves past it; false if it cannot.
bool ReadError(JsonCursor& cursor, ErrorKind* kind) {
  const bool denied = cursor.NextIs('n') || cursor.NextIs('f');
  *kind = denied ? ErrorKind::kNone : ErrorKind::kOther;
  if (!cursor.NextIs('{')) return cursor.SkipValue();
  std::string_view code;
  std::string_view type;
  const bool complete = cursor.Object([&code, &type](std::string_view name, JsonCursor& value) {
    std::string_view* const word = name == "code" ? &code : name == "type" ? &type : nullptr;
    if (word == nullptr || value.NextIs('{') || value.NextIs('[')) return value.SkipValue();
    return value.NextIs('"') ? value.String(word) : value.Scalar(word);
  });
  const std::optional<uint64_t> number = ParseDecimal(code);
  const bool is_status = number.has_value() && *number >= 100 && *number < 600;
  const bool server = is_status ? IsServerStatus(*number) : NamesServerError(code) || NamesServerError(type);
  if (server) *kind = ErrorKind::kServer;
  return complete;
}

// Of a whole JSON text that is an object: the kind of error that its member `error` names.
ErrorKind FindError(std::string_view text) {
  if (text.find("\"error\"") == std::string_view::npos) return ErrorKind::kNone;
  ErrorKind kind = ErrorKind::kNone;
  JsonCursor cursor(text);
  const bool complete = cursor.Object([&kind](std::string_view name, JsonCursor& value) {
    return name == "error" ? ReadError(value, &kind) : value.SkipValue();
  });
  return complete && cursor.AtEnd() ? kind : ErrorKind::kNone;
}

// Whether exactly these brackets close from here, behind a value, to the end of the text. So "}]}" says that the value
// is a member of an element of a list in the outermost object.
bool ClosesBy(std::string_view rest, std::string_view closers) {
  size_t open = 0;
  for (size_t at = 0; at < rest.size(); ++at) {
    switch (rest[at]) {
      case '"': {
        JsonCursor string(rest.substr(at));
        std::string_view contents;
        if (!string.String(&contents)) return false;
        at += contents.size() + 1;
        break;
      }
      case '{':
      case '[':
        ++open;
        break;
      case '}':
      case ']':
        if (open != 0) {
          --open;
        } else if (closers.empty() || closers.front() != rest[at]) {
          return false;
        } else {
          closers.remove_prefix(1);
        }
        break;
      default:
        break;
    }
  }
  return open == 0 && closers.empty();
}

// Calls visit(value) for each member `name`, the last one first, until it returns true. The cursor is on the value.
template <typename Visit>
bool AnyMember(std::string_view text, const QuotedName& name, bool cut, Visit visit) {
  for (size_t at = text.size(); (at = FindLast(text, name, at, cut)) != std::string_view::npos;) {
    JsonCursor value(text.substr(at + name.text.size()));
    if (value.Take(':') && visit(value)) return true;
  }
  return false;
}

bool IsAbort(std::string_view word) { return word == "abort" || word == "aborted" || word == "cancelled"; }

// A string, or SGLang's object with the type, a message and for some an HTTP status.
bool ReadsAbort(JsonCursor& value) {
  std::string_view word;
  if (!value.NextIs('{')) return value.NextIs('"') && value.String(&word) && word == "abort";
  std::string_view status;
  const bool complete = value.Object([&](std::string_view name, JsonCursor& inner) {
    if (name == "type" && inner.NextIs('"')) return inner.String(&word);
    if (name == "status_code" && !inner.NextIs('"') && !inner.NextIs('{') && !inner.NextIs('['))
      return inner.Scalar(&status);
    return inner.SkipValue();
  });
  const uint64_t code = ParseDecimal(status).value_or(0);
  return complete && word == "abort" && (code < 400 || code >= 500);
}

// Of a choice, of SGLang's meta_info, or of that in a list of several responses.
bool AbortsChoice(std::string_view text, bool cut) {
  return AnyMember(text, kFinishReasonName, cut, [](JsonCursor& value) {
    return ReadsAbort(value) &&
           (ClosesBy(value.rest(), "}]}") || ClosesBy(value.rest(), "}}") || ClosesBy(value.rest(), "}}]"));
  });
}

// Of the member that these brackets close behind; nullopt: there is none.
std::optional<bool> StopReasonAborts(std::string_view text, std::string_view closers, bool cut) {
  std::optional<bool> aborts;
  AnyMember(text, kStopReasonName, cut, [&](JsonCursor& value) {
    std::string_view word;
    const bool is_text = value.NextIs('"');
    const bool read = is_text ? value.String(&word) : value.Scalar(&word);
    if (!read || !ClosesBy(value.rest(), closers)) return false;
    aborts = word == (is_text ? "abort" : "null");
    return true;
  });
  return aborts;
}

// A message that is no stream, which vLLM sends without the members that are null. Its model stands behind its content
// and in front of the reason, so a tail that has the model would have the reason, too.
bool AbortsMessage(std::string_view text, bool cut) {
  const std::optional<bool> aborts = StopReasonAborts(text, "}", cut);
  if (aborts) return *aborts;
  return AnyMember(text, cut ? kModelName : kTypeName, cut, [cut](JsonCursor& value) {
    std::string_view word;
    const bool is_message = value.NextIs('"') && value.String(&word) && (cut || word == "message");
    return is_message && ClosesBy(value.rest(), "}");
  });
}

bool AbortsResponse(std::string_view text, std::string_view closers, bool cut) {
  return AnyMember(text, kStatusName, cut, [&](JsonCursor& value) {
    std::string_view status;
    if (!value.NextIs('"') || !value.String(&status) || !ClosesBy(value.rest(), closers)) return false;
    if (status != "incomplete") return status == "cancelled";
    // Details that were cut off are those of a response that has reached its maximum of tokens: engines say so.
    bool aborted = !cut;
    AnyMember(text, kDetailsName, cut, [&](JsonCursor& details) {
      std::string_view reason;
      const bool null = details.NextIs('n') && details.Scalar(&reason);
      const bool read = null || details.Object([&](std::string_view name, JsonCursor& inner) {
        return name == "reason" && inner.NextIs('"') ? inner.String(&reason) : inner.SkipValue();
      });
      if (!read || !ClosesBy(details.rest(), closers)) return false;
      aborted = null || IsAbort(reason);
      return true;
    });
    return aborted;
  });
}

// Calls visit(data, cut) for each event, the last one first, until it returns false. `data` are the
// event's data lines, joined by LF; `cut` is true if its start may be missing. The last event counts
// even if no empty line ends it.
template <typename Visit>
void ForEachEventFromTheEnd(std::string_view text, bool cut, Visit visit) {
  std::string_view data;
  std::string joined;
  bool has_data = false;
  for (size_t end = text.size();;) {
    const void* found = ::memrchr(text.data(), '\n', end);
    const size_t begin =
        found == nullptr ? 0 : static_cast<size_t>(static_cast<const char*>(found) - text.data()) + 1;
    std::string_view line = text.substr(begin, end - begin);
    if (line.ends_with('\r')) line.remove_suffix(1);
    const bool is_data = line.starts_with("data:");
    const bool half_a_line = begin == 0 && cut && !is_data && !line.empty();
    if (is_data || half_a_line) {
      if (is_data) line.remove_prefix(line.substr(5).starts_with(' ') ? 6 : 5);
      if (has_data) {
        joined = std::string(line) + '\n' + std::string(data);
        data = joined;
      } else {
        data = line;
      }
      has_data = true;
    }
    if (has_data && (line.empty() || begin == 0)) {
      if (!visit(data, half_a_line)) return;
      has_data = false;
    }
    if (begin == 0) return;
    end = begin - 1;
  }
}

// No line of a JSON text starts with the letter d: it may not occur between tokens, and strings hold no
// line ends.
bool IsEventStream(std::string_view text, bool cut) {
  return (!cut && text.starts_with("data:")) || text.find("\ndata:") != std::string_view::npos;
}

bool SaysAborted(std::string_view text, ResponseForm form, bool cut) {
  // One search says no in nearly all responses.
  const bool may_abort = form != ResponseForm::kChoices ||
                         FindLast(text, kAbortWord, text.size(), cut) != std::string_view::npos;
  if (!may_abort) return false;
  // The last event of /v1/responses has all of the response, and may be longer than the tail.
  const bool ends_an_event = text.ends_with("\n\n") || text.ends_with("\n\r\n");
  if (!IsEventStream(text, cut) && !(cut && ends_an_event)) {
    return form == ResponseForm::kChoices   ? AbortsChoice(text, cut)
           : form == ResponseForm::kMessage ? AbortsMessage(text, cut)
                                            : AbortsResponse(text, "}", cut);
  }
  bool aborted = false;
  int events = 0;
  ForEachEventFromTheEnd(text, cut, [&](std::string_view data, bool data_cut) {
    ++events;
    if (form == ResponseForm::kChoices) {  // each choice may have ended in an event of its own
      aborted = AbortsChoice(data, data_cut);
      return !aborted;
    }
    if (form == ResponseForm::kResponse) {
      aborted = AbortsResponse(data, "}}", data_cut);
      return TrimBlanks(data) == "[DONE]";
    }
    const bool is_delta = data.find("\"message_delta\"") != std::string_view::npos;
    aborted = is_delta && StopReasonAborts(data, "}}", data_cut).value_or(false);
    return !is_delta && events < kEventsSearched;
  });
  return aborted;
}

// Of an event of OpenAI's responses, or of Anthropic's messages. One that was cut off in front may have had its name
// there; but only the last of a response has its usage, as a member of a member.
bool EndsStream(std::string_view data, bool cut) {
  constexpr std::array<std::string_view, 4> kLast = {
      "message_stop", "response.completed", "response.incomplete", "response.failed"};
  if (TrimBlanks(data) == "[DONE]") return true;
  const bool named = AnyMember(data, kTypeName, cut, [&](JsonCursor& value) {
    std::string_view word;
    return value.NextIs('"') && value.String(&word) && std::ranges::find(kLast, word) != kLast.end() &&
           ClosesBy(value.rest(), "}");
  });
  return named || (cut && AnyMember(data, kUsageName, cut, [](JsonCursor& value) {
                     return value.NextIs('{') && value.SkipValue() && ClosesBy(value.rest(), "}}");
                   }));
}

}  // namespace

void StreamTail::Add(std::string_view body_data) {
  if (tail_.empty() && !body_data.empty()) is_object_ = body_data.front() == '{';
  if (is_object_ && (cut_ || tail_.size() + body_data.size() > kStreamTailBytes)) {
    if (!cut_) KeepUsage(tail_);
    KeepUsage(body_data);
  }
  if (body_data.size() >= kStreamTailBytes) {
    cut_ = cut_ || !tail_.empty() || body_data.size() > kStreamTailBytes;
    tail_.assign(body_data.substr(body_data.size() - kStreamTailBytes));
    oldest_ = 0;
    return;
  }
  const size_t fits = std::min(body_data.size(), kStreamTailBytes - tail_.size());
  // A short response takes what it needs; one that grows gets the whole ring.
  const size_t needed = tail_.size() + fits;
  if (needed > tail_.capacity()) tail_.reserve(needed <= kStreamTailBytes / 2 ? needed : kStreamTailBytes);
  tail_.append(body_data.substr(0, fits));
  body_data.remove_prefix(fits);
  if (body_data.empty()) return;
  // The ring is full: overwrite the oldest bytes, in two pieces where it wraps.
  cut_ = true;
  const size_t to_end = std::min(body_data.size(), kStreamTailBytes - oldest_);
  body_data.copy(tail_.data() + oldest_, to_end);
  body_data.copy(tail_.data(), body_data.size() - to_end, to_end);
  oldest_ = (oldest_ + body_data.size()) % kStreamTailBytes;
}

// Called with all of a body, piece by piece, once it is known to be longer than the tail.
void StreamTail::KeepUsage(std::string_view body_data) {
  constexpr size_t kSeam = kUsageName.text.size();  // a backslash and all of the name but its last byte
  const auto keep = [this](std::string_view text) {
    usage_.append(text.substr(0, kUsageBytes - std::min(usage_.size(), kUsageBytes)));
  };
  const std::string joint = seam_ + std::string(body_data.substr(0, kSeam));
  size_t at = FindLast(body_data, kUsageName, body_data.size(), true);
  if (at != std::string_view::npos) {
    usage_.clear();
    keep(body_data.substr(at));
  } else if (
      (at = FindLast(joint, kUsageName, seam_.size() + 1, seam_.size() == kSeam)) != std::string_view::npos) {
    usage_.assign(seam_, at);
    keep(body_data);
  } else if (!usage_.empty()) {
    keep(body_data);
  }
  seam_.append(body_data.substr(body_data.size() - std::min(body_data.size(), kSeam)));
  seam_.erase(0, seam_.size() - std::min(seam_.size(), kSeam));
}

// From the oldest byte to the newest; in `unrolled` if the ring has wrapped.
std::string_view StreamTail::Text(std::string* unrolled) const {
  if (oldest_ == 0) return tail_;
  *unrolled = tail_.substr(oldest_) + tail_.substr(0, oldest_);
  return *unrolled;
}

bool StreamTail::EndsWithEvent() const {
  std::string unrolled;
  std::string_view text = Text(&unrolled);
  bool is_cut = cut_;  // the line's begin was dropped
  bool in_event = cut_;
  while (!text.empty()) {
    const size_t end = text.find_first_of("\r\n");
    if (end == std::string_view::npos) return false;
    const std::string_view line = text.substr(0, end);
    if (line.empty() && !is_cut) {
      in_event = false;
    } else if (!line.starts_with(':') || is_cut) {
      in_event = true;
    }
    is_cut = false;
    text.remove_prefix(text.substr(end).starts_with("\r\n") ? end + 2 : end + 1);
  }
  return !in_event;
}

bool StreamTail::EndsWithLastEvent() const {
  if (tail_.empty() || !EndsWithEvent()) return false;
  std::string unrolled;
  bool ends = false;
  ForEachEventFromTheEnd(Text(&unrolled), cut_, [&ends](std::string_view data, bool cut) {
    ends = EndsStream(data, cut);
    return false;
  });
  return ends;
}

StreamSummary StreamTail::Summarize(std::optional<ResponseForm> form) const {
  std::string unrolled;
  const std::string_view text = Text(&unrolled);
  StreamSummary summary;
  ErrorKind error = ErrorKind::kNone;
  Usage usage;
  if (IsEventStream(text, cut_)) {
    int events = 0;
    ForEachEventFromTheEnd(text, cut_, [&](std::string_view data, bool cut) {
      if (events == 0 && !summary.done && TrimBlanks(data) == "[DONE]") {
        summary.done = true;
        return true;
      }
      if (events == 0 && !cut) error = FindError(data);
      usage = FindUsage(data, cut);
      return !usage.any() && ++events < kEventsSearched;
    });
  } else {
    if (!cut_) error = FindError(text);
    usage = FindUsage(text, cut_);
    if (!usage.any()) usage = FindUsage(usage_, false);
  }
  if (form) summary.aborted = SaysAborted(text, *form, cut_);
  summary.error = error != ErrorKind::kNone;
  summary.server_error = error == ErrorKind::kServer;
  summary.prompt_tokens = usage.prompt_tokens;
  summary.completion_tokens = usage.completion_tokens;
  summary.cached_tokens = usage.cached_tokens;
  return summary;
}

uint64_t StreamTail::EstimateEvents(uint64_t stream_bytes) const {
  constexpr std::string_view kDone = "[DONE]";
  std::string unrolled;
  const std::string_view text = Text(&unrolled);
  if (!IsEventStream(text, cut_)) return 0;
  // Each event is taken to end where the next one's data begin.
  const size_t first = !cut_ && text.starts_with("data:") ? 0 : text.find("\ndata:") + 1;
  size_t last = first;
  uint64_t gaps = 0;
  for (size_t next; (next = text.find("\ndata:", last)) != std::string_view::npos; ++gaps) last = next + 1;
  const bool done = TrimBlanks(text.substr(last + 5, kDone.size() + 1)) == kDone;
  if (gaps == 0 && done && !cut_) return 0;
  if (gaps == 0) return std::max<uint64_t>(1, stream_bytes / text.size());  // one event fills the tail
  const uint64_t each = (last - first) / gaps;
  const uint64_t end = done ? std::min<uint64_t>(text.size() - last, stream_bytes) : 0;
  return std::max<uint64_t>(1, (stream_bytes - end + each / 2) / each);
}

}  // namespace vllm_router
