#include "simulation/generated_text.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <span>

#include "base/text.h"

namespace vllm_router {

namespace {

constexpr size_t kWords = 64;
constexpr std::string_view kText =  // 64 windows of four bytes
    " air ant ark art ash bay bed bee bow box cat cow cup dew dog dry"
    " ear elm eye far fig fir fly fog fox gem get hay hen hop hut ice"
    " ink ivy jam jar joy key kit lap leg log map may net new nut oak"
    " oar old own pea pen pie ram ray red run sea sky sun tea two way";
static_assert(kText.size() == kWords * SimulatedPrompt::kTokenBytes);

// Wide characters, each token behind the one before it.
constexpr std::array<std::string_view, 2> kAccent = {" \xc3", "\xa9"};             // é
constexpr std::array<std::string_view, 2> kIdeograph = {" \xe6", "\xb5\xb7"};      // 海
constexpr std::array<std::string_view, 3> kEmoji = {" \xf0", "\x9f\x98", "\x80"};  // 😀
constexpr std::span<const std::string_view> kWide[] = {kAccent, kIdeograph, kEmoji};
constexpr uint64_t kWordsForOneWide = 8;

constexpr std::string_view kGarbage = " GARBAGE";
constexpr uint64_t kStep = 0x9e3779b97f4a7c15;  // SplitMix64's

uint32_t IdOf(std::string_view bytes) {
  uint32_t id = 0;
  std::memcpy(&id, bytes.data(), std::min(bytes.size(), sizeof(id)));
  return id;
}

// Draws ids one behind the other. What they depend on is a sum over all ids and their places, so that it does not matter
// which of them were the prompt's.
class IdDraw {
 public:
  IdDraw(const SimulatedPrompt& prompt, size_t choice, const GenerationOptions& options)
      : wide_(options.wide_text), seed_(options.seed), choice_(AnswerDraw(kStep, choice)) {
    for (const uint32_t id : prompt.tokens) Add(id);
  }

  uint32_t Next() {
    const uint32_t id = Choose();
    Add(id);
    return id;
  }

 private:
  void Add(uint32_t id) {
    sum_ += AnswerDraw(id, ++count_);
    last_ = id;
  }

  uint32_t Choose() {
    if (const std::optional<uint32_t> rest = wide_ ? RestOfCharacter() : std::nullopt) return *rest;
    const uint64_t drawn =
        seed_ ? AnswerDraw(sum_ + choice_ + *seed_, ++drawn_) : AnswerDraw(sum_ + choice_, 0);
    if (wide_ && (drawn >> 32) % kWordsForOneWide == 0) {
      return IdOf(kWide[(drawn >> 40) % std::size(kWide)].front());
    }
    constexpr size_t kBytes = SimulatedPrompt::kTokenBytes;
    return IdOf(kText.substr(drawn % kWords * kBytes, kBytes));
  }

  std::optional<uint32_t> RestOfCharacter() const {
    for (const std::span<const std::string_view> character : kWide) {
      for (size_t i = 0; i + 1 < character.size(); ++i) {
        if (last_ == IdOf(character[i])) return IdOf(character[i + 1]);
      }
    }
    return std::nullopt;
  }

  const bool wide_;
  const std::optional<uint64_t> seed_;
  const uint64_t choice_;
  uint64_t sum_ = 0;
  uint64_t count_ = 0;
  uint64_t drawn_ = 0;
  uint32_t last_ = 0;
};

// The last bytes begin a character that they do not end.
bool EndsInsideCharacter(std::string_view text) {
  constexpr size_t kMost = 3;  // of four
  for (size_t back = 1; back <= std::min(kMost, text.size()); ++back) {
    const auto byte = static_cast<uint8_t>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;  // not the first one
    return byte >= 0xc0 && static_cast<size_t>(std::countl_one(byte)) > back;
  }
  return false;
}

// Where the last so many characters begin.
size_t BeforeLast(size_t characters, std::string_view text) {
  size_t at = text.size();
  while (characters > 0 && at > 0) {
    --at;
    if ((static_cast<uint8_t>(text[at]) & 0xc0) != 0x80) --characters;
  }
  return at;
}

size_t CharactersIn(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; }));
}

// The ids whose bytes may belong to one character.
std::string EndOf(const std::vector<uint32_t>& tokens) {
  return TextOfTokens(std::span(tokens).last(std::min<size_t>(4, tokens.size())));
}

}  // namespace

GeneratedText::GeneratedText(
    const SimulatedPrompt& prompt, size_t choice, size_t tokens, const GenerationOptions& options) {
  ids_.reserve(tokens);
  shown_.reserve(tokens);
  text_.reserve(tokens * SimulatedPrompt::kTokenBytes);
  size_t held_back = 0;
  for (const std::string& stop : options.stops) held_back = std::max(held_back, CharactersIn(stop) - 1);
  const bool leaks = options.wide_text && EndsInsideCharacter(EndOf(prompt.tokens));
  std::string waiting = leaks ? TextOfTokens(prompt.tokens) : std::string();
  IdDraw draw(prompt, choice, options);
  while (ids_.size() < tokens && stop_.empty()) {
    const uint32_t id = prompt.garbage ? IdOf(kGarbage) : draw.Next();
    ids_.push_back(id);
    waiting += prompt.garbage ? std::string(kGarbage) : TextOfTokens(std::span(&id, 1));
    if (!EndsInsideCharacter(waiting)) {
      Append(waiting);
      if (leaks && prompt_bytes_ == 0) {
        prompt_bytes_ = text_.size();
      } else {
        LookForStop(waiting.size(), options.stops);
      }
      waiting.clear();
    }
    shown_.push_back(std::max(prompt_bytes_, BeforeLast(held_back, text_)));
  }
  if (!shown_.empty()) shown_.back() = text_.size();
}

void GeneratedText::Append(std::string_view characters) {
  const std::string quoted = JsonQuoted(characters);
  text_.append(quoted, 1, quoted.size() - 2);
}

// One that ends within the last `bytes`, which are new.
void GeneratedText::LookForStop(size_t bytes, const std::vector<std::string>& stops) {
  for (const std::string& stop : stops) {
    const size_t back = std::min(text_.size() - prompt_bytes_, bytes + stop.size() - 1);
    const size_t found = text_.find(stop, text_.size() - back);
    if (found == std::string::npos) continue;
    text_.resize(found);
    stop_ = stop;
    return;
  }
}

std::string_view GeneratedText::Shown(size_t token) const {
  if (token >= shown_.size()) return {};
  const size_t begin = token == 0 ? 0 : shown_[token - 1];
  return std::string_view(text_).substr(begin, shown_[token] - begin);
}

}  // namespace vllm_router
