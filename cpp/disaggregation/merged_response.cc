#include "disaggregation/merged_response.h"

#include <simdjson.h>

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "base/text.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

using Elements = std::vector<std::string_view>;

constexpr std::string_view kPromptLogprobs = "prompt_logprobs";

constexpr size_t kMaxUsage = 4096;

// More than any text has; so sums of two stay far from overflow.
constexpr uint64_t kMaxCount = uint64_t{1} << 53;

// Unread values included.
bool IsJson(std::string_view text) {
  simdjson::dom::parser parser;
  return parser.parse(text.data(), text.size()).error() == simdjson::SUCCESS;
}

// Empty: absent or null. nullopt: several times.
std::optional<std::string_view> ValueIn(const BodyMap& object, std::string_view name) {
  const size_t count = object.Count(name);
  if (count > 1) return std::nullopt;
  if (count == 0) return std::string_view();
  const BodyMap::Member& member = *object.Find(name);
  return member.type == BodyMap::Type::kNull ? std::string_view() : member.value;
}

std::optional<Elements> AllElements(std::string_view array) {
  return JsonElements(array, std::numeric_limits<size_t>::max());
}

std::optional<uint64_t> CountOf(std::string_view number) {
  const std::optional<uint64_t> count = ParseDecimal(number);
  return count && *count <= kMaxCount ? count : std::nullopt;
}

// The text from the first to the last of neighbors in an array.
std::string_view SpanOf(std::span<const std::string_view> neighbors) {
  if (neighbors.empty()) return {};
  const char* const end = neighbors.back().data() + neighbors.back().size();
  return {neighbors.front().data(), static_cast<size_t>(end - neighbors.front().data())};
}

std::string ArrayOf(std::string_view first, std::string_view then) {
  return Concat("[", first, first.empty() || then.empty() ? "" : ",", then, "]");
}

// A text of which slices are replaced.
class Splice {
 public:
  explicit Splice(std::string_view text) : text_(text) {}

  // `object` is in the text. A member that it has not comes first. Each name once.
  void Set(const BodyMap& object, std::string_view name, std::string value) {
    if (const BodyMap::Member* const member = object.Find(name)) {
      if (member->value != value) {
        edits_.push_back({PlaceOf(member->value), member->value.size(), std::move(value)});
      }
      return;
    }
    const size_t at = PlaceOf(object.body()) + object.body().find('{') + 1;
    std::string text = Concat("\"", name, "\":", value);
    const auto before =
        std::ranges::find_if(edits_, [at](const Edit& edit) { return edit.at == at && edit.removed == 0; });
    if (before != edits_.end()) {
      before->text = Concat(text, ",", before->text);
    } else {
      if (!object.members().empty()) text += ',';
      edits_.push_back({at, 0, std::move(text)});
    }
  }

  std::string Text() {
    std::ranges::sort(edits_, {}, &Edit::at);
    std::string out;
    size_t at = 0;
    for (const Edit& edit : edits_) {
      out += text_.substr(at, edit.at - at);
      out += edit.text;
      at = edit.at + edit.removed;
    }
    out += text_.substr(at);
    return out;
  }

 private:
  struct Edit {
    size_t at;
    size_t removed;  // bytes
    std::string text;
  };

  size_t PlaceOf(std::string_view slice) const { return static_cast<size_t>(slice.data() - text_.data()); }

  const std::string_view text_;
  std::vector<Edit> edits_;
};

// Both read alike. `merge` gets two objects.
template <typename Merge>
bool MergeObjects(std::string_view prefill, std::string_view decode, Merge merge) {
  const BodyMap prefill_map = BodyMap::Read(prefill);
  const BodyMap decode_map = BodyMap::Read(decode);
  return prefill_map.ok() && decode_map.ok() && merge(prefill_map, decode_map);
}

// Of two arrays that have as many elements.
template <typename Merge>
bool MergeArrays(std::string_view prefill, std::string_view decode, Merge merge) {
  const std::optional<Elements> ours = AllElements(prefill);
  const std::optional<Elements> theirs = AllElements(decode);
  if (!ours || !theirs || ours->size() != theirs->size()) return false;
  for (size_t i = 0; i < ours->size(); ++i) {
    if (!MergeObjects((*ours)[i], (*theirs)[i], merge)) return false;
  }
  return true;
}

// Prefill's, if it has them. `prompt`: how many.
bool MergePromptLogprobs(
    const BodyMap& prefill, const BodyMap& decode, Splice* out, std::optional<size_t>* prompt) {
  const std::optional<std::string_view> told = ValueIn(prefill, kPromptLogprobs);
  if (!told || !ValueIn(decode, kPromptLogprobs)) return false;
  if (told->empty()) return true;
  const std::optional<Elements> elements = AllElements(*told);
  if (!elements) return false;
  *prompt = elements->size();
  out->Set(decode, kPromptLogprobs, std::string(*told));
  return true;
}

// The lists of a completion's logprobs have one element per token.
class TokenLists {
 public:
  static constexpr std::array<std::string_view, 4> kNames = {
      "tokens", "token_logprobs", "top_logprobs", "text_offset"};
  enum : size_t { kTokens, kTokenLogprobs, kTopLogprobs, kTextOffset };

  static std::optional<TokenLists> Read(const BodyMap& logprobs) {
    TokenLists lists;
    for (size_t i = 0; i < kNames.size(); ++i) {
      const std::optional<std::string_view> value = ValueIn(logprobs, kNames[i]);
      std::optional<Elements> elements = value ? AllElements(*value) : std::nullopt;
      if (!elements || (i != 0 && elements->size() != lists.size())) return std::nullopt;
      lists.lists_[i] = *std::move(elements);
    }
    return lists;
  }

  size_t size() const { return lists_[kTokens].size(); }
  const Elements& operator[](size_t list) const { return lists_[list]; }
  // Only a prompt's first token has no probability.
  bool StartsWithPrompt() const {
    return !lists_[kTokenLogprobs].empty() && lists_[kTokenLogprobs].front() == "null";
  }

 private:
  std::array<Elements, kNames.size()> lists_;
};

bool MeanTheSame(std::string_view token, std::string_view other) {
  if (token == other) return true;
  if (token.front() != '"' || other.front() != '"') return false;
  const std::optional<std::string> meaning = UnescapedJson(token.substr(1, token.size() - 2));
  return meaning && meaning == UnescapedJson(other.substr(1, other.size() - 2));
}

// Offsets of a text that starts with its first token, which is `shift` behind a prompt's start.
std::optional<std::string> Shifted(std::span<const std::string_view> offsets, std::string_view shift) {
  const std::optional<uint64_t> by = CountOf(shift);
  if (!by || (!offsets.empty() && offsets.front() != "0")) return std::nullopt;
  std::string out;
  for (const std::string_view offset : offsets) {
    const std::optional<uint64_t> count = CountOf(offset);
    if (!count) return std::nullopt;
    if (!out.empty()) out += ',';
    out += Concat(*by + *count);
  }
  return out;
}

bool MergeTokenLists(
    const TokenLists& prefill, const TokenLists& decode, size_t prompt, const BodyMap& logprobs,
    Splice* out) {
  if (prefill.size() == 1) return true;  // the prompt is not echoed
  if (prefill.size() != prompt + 1 || !prefill.StartsWithPrompt()) return false;
  const bool has_prompt = decode.StartsWithPrompt();
  const auto first_of = [prompt](const Elements& list) { return std::span(list).first(prompt); };
  if (has_prompt) {
    const bool same = decode.size() >= prompt && std::ranges::equal(
                                                     first_of(prefill[TokenLists::kTokens]),
                                                     first_of(decode[TokenLists::kTokens]), &MeanTheSame);
    if (!same) return false;
  }
  for (size_t i = 0; i < TokenLists::kNames.size(); ++i) {
    const std::string_view first = SpanOf(first_of(prefill[i]));
    const std::span<const std::string_view> generated = std::span(decode[i]).subspan(has_prompt ? prompt : 0);
    if (i != TokenLists::kTextOffset || has_prompt) {
      out->Set(logprobs, TokenLists::kNames[i], ArrayOf(first, SpanOf(generated)));
      continue;
    }
    // The offset of prefill's own token is where the text behind the prompt starts, in whatever unit engines count.
    const std::optional<std::string> shifted = Shifted(generated, prefill[i].back());
    if (!shifted) return false;
    out->Set(logprobs, TokenLists::kNames[i], ArrayOf(first, *shifted));
  }
  return true;
}

bool MergeChoice(const BodyMap& prefill, const BodyMap& decode, Splice* out) {
  if (ValueIn(prefill, "index") != ValueIn(decode, "index")) return false;
  std::optional<size_t> prompt;
  if (!MergePromptLogprobs(prefill, decode, out, &prompt)) return false;
  if (!prompt) return true;
  const std::optional<std::string_view> ours = ValueIn(prefill, "logprobs");
  const std::optional<std::string_view> theirs = ValueIn(decode, "logprobs");
  if (!ours || !theirs) return false;
  if (ours->empty()) return true;
  return MergeObjects(*ours, *theirs, [prompt, out](const BodyMap& ours_map, const BodyMap& theirs_map) {
    const std::optional<TokenLists> prefill_lists = TokenLists::Read(ours_map);
    const std::optional<TokenLists> decode_lists = TokenLists::Read(theirs_map);
    return prefill_lists && decode_lists &&
           MergeTokenLists(*prefill_lists, *decode_lists, *prompt, theirs_map, out);
  });
}

bool MergeChoices(const BodyMap& prefill, const BodyMap& decode, Splice* out) {
  const std::optional<std::string_view> ours = ValueIn(prefill, "choices");
  const std::optional<std::string_view> theirs = ValueIn(decode, "choices");
  if (!ours || !theirs) return false;
  return MergeArrays(*ours, *theirs, [out](const BodyMap& prefill_choice, const BodyMap& decode_choice) {
    return MergeChoice(prefill_choice, decode_choice, out);
  });
}

// Of [log probability, token id, text].
bool AreOfTheSameTokens(const Elements& these, const Elements& those) {
  return std::ranges::equal(these, those, [](std::string_view one, std::string_view other) {
    const std::optional<Elements> first = JsonElements(one, 2);
    const std::optional<Elements> second = JsonElements(other, 2);
    return first && second && first->size() == 2 && second->size() == 2 && first->back() == second->back();
  });
}

bool MergeMetaInfo(const BodyMap& prefill, const BodyMap& decode, Splice* out) {
  constexpr std::array<std::string_view, 3> kNames = {
      "input_token_logprobs", "input_top_logprobs", "input_token_ids_logprobs"};
  bool has_prompt = false;
  for (const std::string_view name : kNames) {
    const std::optional<std::string_view> ours = ValueIn(prefill, name);
    const std::optional<std::string_view> theirs = ValueIn(decode, name);
    if (!ours || !theirs) return false;
    if (ours->empty()) continue;
    const std::optional<Elements> first = AllElements(*ours);
    const std::optional<Elements> then = theirs->empty() ? Elements() : AllElements(*theirs);
    if (!first || !then) return false;
    if (name == kNames.front()) has_prompt = !then->empty() && AreOfTheSameTokens(*first, *then);
    if (first->empty()) continue;
    out->Set(decode, name, ArrayOf(SpanOf(*first), has_prompt ? std::string_view() : SpanOf(*then)));
  }
  return true;
}

bool MergeGenerated(const BodyMap& prefill, const BodyMap& decode, Splice* out) {
  const std::optional<std::string_view> ours = ValueIn(prefill, "meta_info");
  const std::optional<std::string_view> theirs = ValueIn(decode, "meta_info");
  if (!ours || !theirs) return false;
  if (ours->empty()) return true;
  return MergeObjects(*ours, *theirs, [out](const BodyMap& prefill_info, const BodyMap& decode_info) {
    return MergeMetaInfo(prefill_info, decode_info, out);
  });
}

bool Merge(PdRoute route, std::string_view prefill, std::string_view decode, Splice* out) {
  if (route == PdRoute::kGenerate) {
    const auto merge = [out](const BodyMap& ours, const BodyMap& theirs) {
      return MergeGenerated(ours, theirs, out);
    };
    const bool listed = JsonScanner(prefill).Peek() == '[';
    return listed ? MergeArrays(prefill, decode, merge) : MergeObjects(prefill, decode, merge);
  }
  return MergeObjects(prefill, decode, [route, out](const BodyMap& ours, const BodyMap& theirs) {
    if (route == PdRoute::kCompletions) return MergeChoices(ours, theirs, out);
    std::optional<size_t> prompt;
    return route != PdRoute::kChat || MergePromptLogprobs(ours, theirs, out, &prompt);
  });
}

bool HasCachedTokens(std::string_view details) {
  const BodyMap map = BodyMap::Read(details);
  const std::optional<std::string_view> cached = ValueIn(map, "cached_tokens");
  return cached && CountOf(*cached);
}

bool MergeUsages(const BodyMap& prefill, const BodyMap& decode, Splice* out) {
  constexpr std::string_view kDetails = "prompt_tokens_details";
  const std::optional<std::string_view> prompt = ValueIn(prefill, "prompt_tokens");
  const std::optional<std::string_view> generated = ValueIn(decode, "completion_tokens");
  const std::optional<std::string_view> ours = ValueIn(prefill, kDetails);
  const std::optional<std::string_view> theirs = ValueIn(decode, kDetails);
  if (!prompt || !generated || !ours || !theirs) return false;
  if (!ValueIn(decode, "prompt_tokens") || !ValueIn(decode, "total_tokens")) return false;
  const std::optional<uint64_t> prompt_count = CountOf(*prompt);
  const std::optional<uint64_t> generated_count = CountOf(*generated);
  if (!prompt_count || !generated_count) return false;
  out->Set(decode, "prompt_tokens", std::string(*prompt));
  out->Set(decode, "total_tokens", Concat(*prompt_count + *generated_count));
  if (!HasCachedTokens(*theirs) && HasCachedTokens(*ours)) out->Set(decode, kDetails, std::string(*ours));
  return true;
}

bool IsGiven(const BodyMap& request, std::string_view name) {
  return std::ranges::any_of(request.members(), [name](const BodyMap::Member& member) {
    const bool off = member.type == BodyMap::Type::kNull || member.type == BodyMap::Type::kFalse;
    return !off && member.Is(name);
  });
}

bool IsTrue(const BodyMap& request, std::string_view name) {
  return std::ranges::any_of(request.members(), [name](const BodyMap::Member& member) {
    return member.type == BodyMap::Type::kTrue && member.Is(name);
  });
}

}  // namespace

bool WantsMerge(PdRoute route, const BodyMap& request) {
  if (IsTrue(request, "stream")) return false;
  if (route == PdRoute::kGenerate) return IsGiven(request, "return_logprob");
  if (route != PdRoute::kChat && route != PdRoute::kCompletions) return false;
  return IsGiven(request, kPromptLogprobs) || (IsTrue(request, "echo") && IsGiven(request, "logprobs"));
}

std::optional<std::string> MergeResponses(
    PdRoute route, std::string_view prefill_response, std::string_view decode_response) {
  if (!IsJson(prefill_response) || !IsJson(decode_response)) return std::nullopt;
  Splice splice(decode_response);
  if (!Merge(route, prefill_response, decode_response, &splice)) return std::nullopt;
  return splice.Text();
}

std::string UsageOf(std::string_view prefill_response) {
  const std::optional<std::string_view> usage = ValueIn(BodyMap::Read(prefill_response), "usage");
  if (!usage || usage->empty() || usage->size() > kMaxUsage || !IsJson(*usage)) return {};
  return Concat("{\"usage\":", *usage, "}");
}

std::optional<std::string> MergeUsage(std::string_view prefill_response, std::string_view decode_response) {
  if (!IsJson(prefill_response) || !IsJson(decode_response)) return std::nullopt;
  Splice splice(decode_response);
  const auto merge_usages = [&splice](const BodyMap& ours, const BodyMap& theirs) {
    return MergeUsages(ours, theirs, &splice);
  };
  const bool merged = MergeObjects(
      prefill_response, decode_response, [&merge_usages](const BodyMap& prefill, const BodyMap& decode) {
        const std::optional<std::string_view> ours = ValueIn(prefill, "usage");
        const std::optional<std::string_view> theirs = ValueIn(decode, "usage");
        if (!ours || !theirs) return false;
        return theirs->empty() || MergeObjects(*ours, *theirs, merge_usages);
      });
  return merged ? std::optional(splice.Text()) : std::nullopt;
}

}  // namespace vllm_router
