#include "continuation/token_stream.h"

#include <algorithm>
#include <utility>

#include "continuation/choice_event.h"
#include "continuation/event_gate.h"

namespace vllm_router {
namespace {

// It says nothing to a client.
bool IsComment(std::string_view event) {
  return event.starts_with(':') && event.find("data") == std::string_view::npos;
}

}  // namespace

TokenStream::TokenStream(const Options& options) : options_(options), is_forgotten_(options.most_ids == 0) {
  placed_ = 1;  // the beginning
}

std::string_view TokenStream::Take(std::string_view event) {
  had_ids_ = true;  // what cannot say anything needs none
  const std::string_view data = OneLineData(event);
  const bool is_object = data.starts_with('{');
  const std::optional<TokenEvent> read = is_object ? ReadTokenEvent(data) : std::nullopt;
  if (lacks_receipt() && !IsComment(event) && !(read && read->has_choice)) unfit_ = true;
  if (!is_object) {
    if (event.starts_with(':') || data == "[DONE]" || event.find("data") == std::string_view::npos)
      return event;
    had_ids_ = false;
    return event;
  }
  had_ids_ = read.has_value() && !read->output.empty();
  if (!read) return event;
  Note(*read);
  return Edited(event, data, *read);
}

void TokenStream::EndRun() { unfit_ = unfit_ || lacks_receipt(); }

void TokenStream::Note(const TokenEvent& event) {
  const bool is_first = event.has_choice && !std::exchange(has_event_, true);
  if (run_ == Run::kRest && is_first) unfit_ = unfit_ || !IsBefore(Before::kAll, event.prompt);
  if (is_forgotten_ || unfit_) return;
  if (event.has_several) return Forget();
  if (run_ != Run::kRest && !event.prompt.empty() && !NotePrompt(event.prompt)) return Forget();
  if (event.output.empty()) return;
  const std::optional<std::vector<uint32_t>> ids = ReadIds(event.output);
  IdLog& log = run_ == Run::kRerun ? rerun_ : output_;
  if (!ids || prompt_.count() + log.count() + ids->size() > options_.most_ids) return Forget();
  log.Add(*ids);
  Grow();
}

// False: that is none, or another one than before.
bool TokenStream::NotePrompt(std::string_view array) {
  if (has_prompt_) return IsBefore(Before::kPrompt, array);
  const std::optional<std::vector<uint32_t>> ids = ReadIds(array);
  if (!ids || ids->empty() || ids->size() > options_.most_ids) return false;
  prompt_.Add(*ids);
  has_prompt_ = true;
  Grow();
  return true;
}

bool TokenStream::IsBefore(Before before, std::string_view array) const {
  const std::optional<std::vector<uint32_t>> ids = ReadIds(array);
  const size_t count = prompt_.count() + (before == Before::kAll ? output_.count() : 0);
  if (!ids || ids->size() != count) return false;
  size_t at = 0;
  bool is_equal = true;
  const auto compare = [&](uint32_t id) { is_equal = is_equal && (*ids)[at++] == id; };
  prompt_.ForEach(compare);
  if (before == Before::kAll) output_.ForEach(compare);
  return is_equal;
}

void TokenStream::Grow() {
  const uint64_t needed = prompt_.capacity() + output_.capacity() + rerun_.capacity();
  if (needed <= taken_) return;
  if (options_.room.grow != nullptr && !options_.room.grow(options_.room.context, needed - taken_)) {
    return Forget();
  }
  taken_ = needed;
}

// What was granted is returned with the stream.
void TokenStream::Forget() {
  is_forgotten_ = true;
  prompt_ = output_ = rerun_ = IdLog();
}

void TokenStream::Mark() {
  const Place last = places_[(placed_ - 1) % kPlaces];
  const bool has_text = tail_.bytes() != std::exchange(marked_bytes_, tail_.bytes());
  if (has_text && !had_ids_ && !is_forgotten_) Forget();
  if (run_ == Run::kRerun || is_forgotten_) return;
  if (has_text && tail_.kind() == TextKind::kReasoning && output_.count() > last.ids) {
    reasoning_ += output_.count() - last.ids;
  }
  if (output_.count() == last.ids && !has_text) return;
  places_[placed_++ % kPlaces] = {.ids = output_.count(), .bytes = tail_.bytes()};
}

std::vector<TokenStream::Place> TokenStream::places() const {
  std::vector<Place> places;
  for (size_t i = placed_ - std::min(placed_, kPlaces); i < placed_; ++i)
    places.push_back(places_[i % kPlaces]);
  return places;
}

void TokenStream::BeginRerun() {
  run_ = Run::kRerun;
  rerun_ = IdLog();
  has_event_ = unfit_ = false;
}

void TokenStream::PromoteRun() {
  if (run_ != Run::kRerun) return;
  run_ = Run::kFirst;
  output_ = std::exchange(rerun_, IdLog());
  before_ = {};
  places_[0] = {.ids = 0, .bytes = 0};
  places_[1] = {.ids = output_.count(), .bytes = tail_.bytes()};
  placed_ = 2;
  marked_bytes_ = tail_.bytes();
}

void TokenStream::BeginRest(size_t ids, std::string_view swallowed) {
  run_ = Run::kRest;
  rerun_ = IdLog();
  has_event_ = unfit_ = false;
  const size_t dropped = output_.count() - ids;
  output_.Truncate(ids);
  reasoning_ -= std::min<uint64_t>(reasoning_, dropped);
  before_ = {
      .prompt = prompt_.count(),
      .output = ids,
      .reasoning = reasoning_,
      .letters = tail_.letters() - TextTail::LettersOf(swallowed)};
  std::vector<Place> kept = places();
  std::erase_if(kept, [ids](const Place& place) { return place.ids > ids; });
  std::ranges::copy(kept, places_.begin());
  placed_ = kept.size();
  const bool is_there = placed_ != 0 && kept.back().ids == ids;
  if (!is_there) places_[placed_++ % kPlaces] = {.ids = ids, .bytes = tail_.bytes() - swallowed.size()};
}

std::string_view TokenStream::Edited(std::string_view event, std::string_view data, const TokenEvent& read) {
  if (options_.hides && options_.is_chat && read.is_of_ids) return {};
  std::vector<TextEdit> edits;
  const bool is_rest = run_ == Run::kRest;
  if (!read.prompt.empty() && (options_.hides || is_rest))
    edits.push_back({.part = read.prompt, .by = "null"});
  if (!read.output.empty() && options_.hides) edits.push_back({.part = read.output, .by = "null"});
  if (is_rest && !read.usage.empty()) {
    edits.push_back({.part = read.usage, .by = UsageOfWhole(read.usage, before_)});
  }
  if (is_rest && !read.text_offsets.empty()) {
    edits.push_back({.part = read.text_offsets, .by = OffsetsInWhole(read.text_offsets, before_)});
  }
  if (edits.empty()) return event;
  edited_.assign(event.data(), data.data());
  edited_ += WithEdits(data, edits);
  edited_.append(data.data() + data.size(), event.data() + event.size());
  return edited_;
}

std::string TokenStream::Hidden(std::string_view events) const {
  return options_.hides ? WithoutIds(events, options_.is_chat) : std::string(events);
}

std::string WithoutIds(std::string_view events, bool is_chat) {
  TokenStream tokens({.hides = true, .is_chat = is_chat, .most_ids = 0});
  std::string out;
  while (!events.empty()) {
    const size_t size = std::min(EventEnd().Find(events), events.size());
    out += tokens.Take(events.substr(0, size));
    events.remove_prefix(size);
  }
  return out;
}

}  // namespace vllm_router
