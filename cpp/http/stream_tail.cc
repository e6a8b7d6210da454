#include "http/stream_tail.h"

#include <algorithm>
#include <bitset>
#include <vector>

#include "base/limits.h"
#include "base/text.h"

namespace vllm_router {
namespace {

// What one JSON text, or the end of one, says.
struct JsonFacts {
  bool valid = false;
  bool error = false;
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> completion_tokens;
  std::optional<uint64_t> cached_tokens;

  bool HasUsage() const { return prompt_tokens || completion_tokens || cached_tokens; }
};

// Reads the end of a JSON text whose beginning is unknown.
//
// Two things are unknown at a cut: whether it fell inside a string, and how many containers are open. The first is
// settled by trying each possibility and keeping the one under which the rest is JSON: taken wrongly, the inside and
// the outside of every string change places, and words such as `usage` stand where only punctuation may. The second is
// known at the end, since what was open then has been closed; until then depth is counted from the cut, and goes below
// zero.
class JsonTailReader {
 public:
  enum class Start : uint8_t { kWhole, kCutOutside, kCutInString, kCutInEscape };

  explicit JsonTailReader(std::string_view text) : text_(text) {}

  JsonFacts Read(Start start) {
    cut_ = start != Start::kWhole;
    expect_ = cut_ ? Expect::kAnything : Expect::kValue;
    size_t i = 0;
    if (start == Start::kCutInString || start == Start::kCutInEscape) {
      i = StringEnd(start == Start::kCutInEscape ? 1 : 0);
      if (i == std::string_view::npos) return {};
      last_string_ = {};  // half a name is no name
      expect_ = Expect::kAfterString;
      ++i;
    } else if (cut_) {
      // Perhaps the second half of a number or of a word.
      while (i < text_.size() && IsScalarChar(text_[i])) ++i;
      if (i > 0) expect_ = Expect::kAfterValue;
    }
    while (i < text_.size()) {
      const char c = text_[i];
      if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
        ++i;
      } else if (c == '"') {
        if (!MayStartString()) return {};
        const size_t end = StringEnd(i + 1);
        if (end == std::string_view::npos) return {};
        last_string_ = text_.substr(i + 1, end - i - 1);
        // In an object before a colon it is a name, otherwise a value; at an unknown level the next byte tells.
        if (expect_ == Expect::kName || expect_ == Expect::kNameOrEnd) {
          expect_ = Expect::kColon;
        } else if (expect_ == Expect::kAnything) {
          expect_ = Expect::kAfterString;
        } else {
          if (name_ == "error") SawError();
          name_ = {};
          expect_ = Expect::kAfterValue;
        }
        i = end + 1;
      } else if (IsScalarChar(c)) {
        const size_t begin = i;
        while (i < text_.size() && IsScalarChar(text_[i])) ++i;
        if (!Scalar(text_.substr(begin, i - begin))) return {};
      } else {
        if (!Punctuation(c)) return {};
        ++i;
      }
    }
    if (depth_ != 0 || expect_ != Expect::kAfterValue) return {};
    facts_.valid = true;
    facts_.error = error_seen_ && error_level_ + unknown_closed_ == 1;
    return facts_;
  }

 private:
  enum class Expect : uint8_t {
    kAnything,     // a level whose kind is unknown: a name or a value
    kValue,        // after a colon, or a comma in an array, or at the start
    kValueOrEnd,   // after [
    kName,         // after a comma in an object
    kNameOrEnd,    // after {
    kColon,        // after a name
    kAfterString,  // a name or a value, at a level whose kind is unknown
    kAfterValue,
  };

  static bool IsScalarChar(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' ||
           c == '.';
  }

  // Depth of what is being read, counted from the cut.
  long Level() const { return static_cast<long>(depth_) - unknown_closed_; }

  bool InObject() const { return depth_ > 0 && is_object_[depth_ - 1]; }

  bool MayStartValue() const {
    return expect_ == Expect::kValue || expect_ == Expect::kValueOrEnd || expect_ == Expect::kAnything;
  }
  bool MayStartString() const {
    return MayStartValue() || expect_ == Expect::kName || expect_ == Expect::kNameOrEnd;
  }

  // Index of the quote that ends the string whose contents start at `i`.
  size_t StringEnd(size_t i) const {
    for (; i < text_.size(); ++i) {
      const char c = text_[i];
      if (c == '"') return i;
      if (c == '\\') ++i;
      if (static_cast<unsigned char>(c) < 0x20) break;
    }
    return std::string_view::npos;
  }

  bool Scalar(std::string_view word) {
    if (!MayStartValue()) return false;
    const bool number = (word[0] >= '0' && word[0] <= '9') || word[0] == '-';
    if (!number && word != "true" && word != "false" && word != "null") return false;
    if (usage_level_ && number) Count(ParseDecimal(word));
    if (name_ == "error" && word != "null" && word != "false") SawError();
    name_ = {};
    expect_ = Expect::kAfterValue;
    return true;
  }

  // A member of the usage object, or of the details object inside it.
  void Count(std::optional<uint64_t> number) {
    if (!number) return;
    if (Level() == *usage_level_ + 1) {
      if (name_ == "prompt_tokens" || name_ == "input_tokens") candidate_.prompt_tokens = number;
      if (name_ == "completion_tokens" || name_ == "output_tokens") candidate_.completion_tokens = number;
      if (name_ == "cached_tokens" || name_ == "cache_read_input_tokens") candidate_.cached_tokens = number;
    } else if (Level() == *usage_level_ + 2 && in_details_ && name_ == "cached_tokens") {
      candidate_.cached_tokens = number;
    }
  }

  // Keeps the shallowest, as a top-level member says what the whole answer is.
  void SawError() {
    if (!error_seen_ || Level() < error_level_) error_level_ = Level();
    error_seen_ = true;
  }

  bool Punctuation(char c) {
    switch (c) {
      case '{':
      case '[':
        return Open(c == '{');
      case '}':
      case ']':
        return Close(c == '}');
      case ':':
        if (expect_ != Expect::kColon && expect_ != Expect::kAfterString) return false;
        name_ = last_string_;
        expect_ = Expect::kValue;
        return true;
      case ',':
        if (expect_ != Expect::kAfterValue && expect_ != Expect::kAfterString) return false;
        if (depth_ == 0) {
          if (!cut_) return false;
          expect_ = Expect::kAnything;
        } else {
          expect_ = InObject() ? Expect::kName : Expect::kValue;
        }
        return true;
      default:
        return false;
    }
  }

  bool Open(bool object) {
    if (!MayStartValue() || depth_ == is_object_.size()) return false;
    if (name_ == "error") SawError();
    if (!usage_level_ && object && (name_ == "usage" || name_ == "meta_info")) {
      usage_level_ = Level();
      candidate_ = {};
    } else if (usage_level_ && object && Level() == *usage_level_ + 1) {
      in_details_ = name_ == "prompt_tokens_details" || name_ == "input_tokens_details";
    }
    name_ = {};
    is_object_[depth_++] = object;
    expect_ = object ? Expect::kNameOrEnd : Expect::kValueOrEnd;
    return true;
  }

  bool Close(bool object) {
    const Expect empty = object ? Expect::kNameOrEnd : Expect::kValueOrEnd;
    const bool after_value = expect_ == Expect::kAfterValue || expect_ == Expect::kAfterString;
    if (depth_ > 0) {
      if (is_object_[depth_ - 1] != object || (!after_value && expect_ != empty)) return false;
      --depth_;
    } else {
      if (!cut_ || (!after_value && expect_ != Expect::kAnything)) return false;
      ++unknown_closed_;
    }
    if (usage_level_ && Level() == *usage_level_) {
      if (candidate_.HasUsage() && (!facts_.HasUsage() || *usage_level_ <= facts_level_)) {
        facts_level_ = *usage_level_;
        facts_.prompt_tokens = candidate_.prompt_tokens;
        facts_.completion_tokens = candidate_.completion_tokens;
        facts_.cached_tokens = candidate_.cached_tokens;
      }
      usage_level_.reset();
    }
    expect_ = Expect::kAfterValue;
    return true;
  }

  std::string_view text_;
  bool cut_ = false;
  Expect expect_ = Expect::kValue;
  std::bitset<kStreamTailBytes> is_object_;  // the containers opened since the cut
  size_t depth_ = 0;
  long unknown_closed_ = 0;  // containers closed that were open at the cut
  std::string_view last_string_;
  std::string_view name_;  // of the member whose value comes next
  std::optional<long> usage_level_;  // level of the member `usage` whose object is being read
  bool in_details_ = false;
  JsonFacts candidate_;
  long facts_level_ = 0;
  bool error_seen_ = false;
  long error_level_ = 0;
  JsonFacts facts_;
};

JsonFacts ReadWholeJson(std::string_view text) { return JsonTailReader(text).Read(JsonTailReader::Start::kWhole); }

JsonFacts ReadCutJson(std::string_view text) {
  using Start = JsonTailReader::Start;
  for (const Start start : {Start::kCutInString, Start::kCutOutside, Start::kCutInEscape}) {
    const JsonFacts facts = JsonTailReader(text).Read(start);
    if (facts.valid) return facts;
  }
  return {};
}

struct Event {
  std::string data;  // the values of its `data` lines, joined by LF
  bool cut = false;  // perhaps the second half of a `data` line
};

// Splits a stream, or the end of one, into its events. The last one counts even without the empty line behind it.
std::vector<Event> SplitEvents(std::string_view text, bool cut) {
  std::vector<Event> events;
  bool open = false;
  const auto add = [&](std::string_view data, bool is_cut) {
    if (open) {
      events.back().data += '\n';
      events.back().data += data;
    } else {
      events.push_back({std::string(data), is_cut});
      open = true;
    }
  };
  bool first = true;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of("\r\n"), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end);
    if (text.starts_with("\r\n")) {
      text.remove_prefix(2);
    } else if (!text.empty()) {
      text.remove_prefix(1);
    }
    if (line.starts_with("data:")) {
      std::string_view data = line.substr(5);
      if (data.starts_with(' ')) data.remove_prefix(1);
      add(data, false);
    } else if (first && cut && !line.empty()) {
      add(line, true);
    } else if (line.empty()) {
      open = false;
    }
    first = false;
  }
  return events;
}

// A line of a JSON text never starts with the letter d: not between tokens, and strings hold no line ends.
bool LooksLikeEvents(std::string_view text, bool cut) {
  return (!cut && text.starts_with("data:")) || text.find("\ndata:") != std::string_view::npos ||
         text.find("\rdata:") != std::string_view::npos;
}

}  // namespace

void StreamTail::Add(std::string_view body_data) {
  if (body_data.size() >= kStreamTailBytes) {
    cut_ = cut_ || !tail_.empty() || body_data.size() > kStreamTailBytes;
    tail_.assign(body_data.substr(body_data.size() - kStreamTailBytes));
    oldest_ = 0;
    return;
  }
  if (tail_.capacity() < kStreamTailBytes) tail_.reserve(kStreamTailBytes);
  const size_t fits = std::min(body_data.size(), kStreamTailBytes - tail_.size());
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

StreamSummary StreamTail::Summarize() const {
  const std::string text = tail_.substr(oldest_) + tail_.substr(0, oldest_);
  StreamSummary summary;
  const auto take = [&summary](const JsonFacts& facts) {
    summary.prompt_tokens = facts.prompt_tokens;
    summary.completion_tokens = facts.completion_tokens;
    summary.cached_tokens = facts.cached_tokens;
  };
  if (!LooksLikeEvents(text, cut_)) {
    const JsonFacts facts = cut_ ? ReadCutJson(text) : ReadWholeJson(text);
    summary.error = facts.error;
    take(facts);
    return summary;
  }
  std::vector<Event> events = SplitEvents(text, cut_);
  if (!events.empty() && TrimBlanks(events.back().data) == "[DONE]") {
    summary.done = true;
    events.pop_back();
  }
  for (size_t i = events.size(); i-- > 0;) {
    const Event& event = events[i];
    const bool may_matter = event.data.find("usage\"") != std::string::npos ||
                            event.data.find("meta_info\"") != std::string::npos ||
                            event.data.find("error\"") != std::string::npos;
    if (!may_matter) continue;
    const JsonFacts facts = event.cut ? ReadCutJson(event.data) : ReadWholeJson(event.data);
    if (i + 1 == events.size()) summary.error = facts.error;
    if (facts.HasUsage()) {
      take(facts);
      break;
    }
  }
  return summary;
}

}  // namespace vllm_router
