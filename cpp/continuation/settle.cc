#include "continuation/settle.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

bool Continues(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

// The last letters of a text, at most so many.
std::string_view LastLetters(std::string_view text, size_t most) {
  size_t at = text.size();
  for (size_t letters = 0; at > 0 && letters < most; ++letters) {
    --at;
    while (at > 0 && Continues(text[at])) --at;
  }
  return text.substr(at);
}

// Without some of its last letters, at most so many bytes, the text ends likewise: it repeats itself. Periods of up to half
// of what is compared are looked for.
bool Repeats(std::string_view text, std::string_view compared, uint64_t most_bytes) {
  const uint64_t longest = std::max<uint64_t>(1, TextTail::LettersOf(compared) / 2);
  const size_t size = text.size();
  for (uint64_t letters = 1; letters <= longest; ++letters) {
    text.remove_suffix(LastLetters(text, 1).size());
    if (text.empty() || size - text.size() > most_bytes) return false;
    if (text.ends_with(LastLetters(compared, TextTail::LettersOf(text)))) return true;
  }
  return false;
}

}  // namespace

SettleSearch::SettleSearch(const TokenStream& tokens, bool may_swallow)
    : tokens_(tokens),
      may_swallow_(may_swallow),
      places_(tokens.places()),
      ids_(tokens.output().count()),
      found_(tokens.tail().bytes() == 0) {
  if (found_) ids_ = 0;  // whatever was generated, the client has none of it
}

std::string SettleSearch::Ids() const {
  std::vector<uint32_t> ids = tokens_.output().Before(ids_, kIds);
  std::string list;
  const auto append = [&list](uint32_t id) {
    if (!list.empty()) list += ',';
    list += Concat(uint64_t{id});
  };
  const size_t prompt = tokens_.prompt().count();
  for (const uint32_t id : tokens_.prompt().Before(prompt, kIds - ids.size())) append(id);
  for (const uint32_t id : ids) append(id);
  return list;
}

// What was sent when these ids were the last ones, or fewer.
uint64_t SettleSearch::Sent() const {
  uint64_t sent = places_.empty() ? 0 : places_.front().bytes;
  for (const TokenStream::Place& place : places_) {
    if (place.ids <= ids_) sent = place.bytes;
  }
  return sent;
}

void SettleSearch::Take(std::string_view text) {
  const std::string_view delivered = tokens_.tail().of_last_kind();
  const uint64_t since = tokens_.tail().bytes() - Sent();
  const size_t most =
      may_swallow_ ? std::min({since, uint64_t{kMostSwallowed}, uint64_t{delivered.size()}}) : 0;
  for (size_t more = 0; more <= most && !text.empty() && !text.ends_with(kReplacement); ++more) {
    if (more > 0 && Continues(delivered[delivered.size() - more])) continue;
    const std::string_view rest = delivered.substr(0, delivered.size() - more);
    const std::string_view wanted = LastLetters(rest, kLetters);
    const std::string_view compared = LastLetters(wanted, TextTail::LettersOf(text));
    if (wanted.empty() || !text.ends_with(compared)) continue;
    if (Repeats(text, compared, text.size()) || (more < since && Repeats(rest, compared, since - more))) {
      steps_ = kMostSteps;  // the place may be behind more ids, or fewer
      return;
    }
    swallowed_ = delivered.substr(rest.size());
    found_ = true;
    return;
  }
  ++steps_;
  --ids_;
  if (!places_.empty() && ids_ < places_.front().ids) steps_ = kMostSteps;
}

void SettleSearch::AssumeNoParser() {
  if (places_.size() < 2) return;
  const TokenStream::Place last = places_.back();
  const TokenStream::Place before = places_[places_.size() - 2];
  found_ = last.ids == before.ids + 1 && last.bytes != before.bytes;
  if (found_) ids_ = last.ids;
}

}  // namespace vllm_router
