// OptionSpec: one row for an option of an options struct: its name, member, range and words. From a table
// of rows follow setting by name, range checks with their messages, and lists that tests compare with
// RouterArgs. A default is not among them: it is the member's initializer, and stands there alone.
//
//   struct DoorOptions { uint32_t width = 90; Hinge hinge = Hinge::kLeft; int64_t delay_ms = 500; };
//   const OptionTable<DoorOptions> table = {
//       {.name = "width", .member = Member<&DoorOptions::width>(),
//        .range = {.min = 60, .max = 120, .what = "the width in cm"}},
//       {.name = "hinge", .member = Word<&DoorOptions::hinge>(),
//        .words = {{"left", Hinge::kLeft}, {"right", Hinge::kRight}}},
//       {.name = "delay_secs", .member = Seconds<&DoorOptions::delay_ms>()}};
//
//   SetOption(table[1], "rigth", &options)
//       hinge is "rigth"; it must be one of left, right (did you mean right?)
//   CheckRanges(table, {.width = 30})
//       width is 30; it is the width in cm and must be between 60 and 120 (default 90)
//
// Several members in angle brackets are a path: Member<&ServerOptions::retry, &RetryOptions::budget>().
// Cost: a search from start to end; options are set when a router or server is made. Immutable, so
// thread-safe.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace vllm_router {

// What an option is set to, in the unit of its name; std::monostate: unset.
using OptionValue =
    std::variant<std::monostate, bool, uint64_t, double, std::string, std::vector<std::string>>;

enum class OptionKind : uint8_t { kSwitch, kCount, kReal, kText, kTexts, kWord };

template <typename Options>
struct OptionMember {
  OptionKind kind;
  uint32_t scale;  // the member is a whole number of this part of the unit; 1: it is the value itself
  double largest;  // number that fits
  OptionValue (*get)(const Options&);         // of kWord: the number of the enumerator
  bool (*set)(Options&, const OptionValue&);  // false: of another type. REQUIRES: it is not above `largest`
};

// Numbers without `what` are limited by their type alone.
struct OptionRange {
  double min = 0;
  double max = std::numeric_limits<double>::infinity();
  std::string_view what = {};  // completes "it is …"
  std::string_view zero = {};  // completes "or 0 to …"; empty: 0 is as other numbers
  bool in_parts = false;       // messages show thousandths as they are kept
};

struct OptionWord {
  template <typename Value>
  OptionWord(std::string_view text, Value value) : word(text), number(static_cast<uint64_t>(value)) {}
  // A word that is known and not implemented: `why` completes "<name> is <word>, ".
  static OptionWord NotBuilt(std::string_view text, std::string_view why) {
    OptionWord word(text, 0);
    word.not_built = why;
    return word;
  }

  std::string_view word;
  uint64_t number;
  std::string_view not_built = {};
};

template <typename Options>
struct OptionSpec {
  std::string_view name;
  OptionMember<Options> member;
  OptionRange range = {};
  std::vector<OptionWord> words = {};
};
template <typename Options>
using OptionTable = std::vector<OptionSpec<Options>>;

// ---- Members ---------------------------------------------------------------------------------------------

namespace option_internal {

inline constexpr double kNoLimit = std::numeric_limits<double>::infinity();

template <typename Of, typename T>
Of OwnerOf(T Of::*);
template <auto kFirst>
using Owner = decltype(OwnerOf(kFirst));

template <auto kMember, auto... kInner, typename Options>
auto& At(Options& options) {
  if constexpr (sizeof...(kInner) == 0) {
    return options.*kMember;
  } else {
    return At<kInner...>(options.*kMember);
  }
}

// A signed member below 0 is unset.
template <typename T>
bool IsUnset(const T& value) {
  if constexpr (std::is_signed_v<T> && std::is_integral_v<T>) return value < 0;
  return false;
}

// As it is given.
template <typename T>
struct Itself {
  static constexpr bool kIsCount = std::is_integral_v<T> && !std::is_same_v<T, bool>;
  using Value = std::conditional_t<kIsCount, uint64_t, T>;
  static constexpr OptionKind kKind = kIsCount                         ? OptionKind::kCount
                                      : std::is_same_v<T, bool>        ? OptionKind::kSwitch
                                      : std::is_same_v<T, double>      ? OptionKind::kReal
                                      : std::is_same_v<T, std::string> ? OptionKind::kText
                                                                       : OptionKind::kTexts;
  static constexpr uint32_t kScale = 1;
  static constexpr double Largest() {
    if constexpr (kIsCount) return static_cast<double>(std::numeric_limits<T>::max());
    return kNoLimit;
  }
  static Value From(const T& member) { return static_cast<Value>(member); }
  static bool To(const Value& value, T* member) {
    *member = static_cast<T>(value);
    return true;
  }
};

// A real number, kept in whole parts of it.
template <typename T, uint32_t kParts, double (*kRound)(double)>
struct InParts {
  using Value = double;
  static constexpr OptionKind kKind = OptionKind::kReal;
  static constexpr uint32_t kScale = kParts;
  // Doubles have all whole numbers up to 2^53.
  static constexpr double Largest() {
    return std::min(static_cast<double>(std::numeric_limits<T>::max()), 0x1p53) / kParts;
  }
  static Value From(T member) { return static_cast<double>(member) / kParts; }
  static bool To(Value value, T* member) {
    if (!(value >= 0)) return false;
    *member = static_cast<T>(kRound(value * kParts));
    return true;
  }
};

template <typename T>
struct Numbered {
  using Value = uint64_t;
  static constexpr OptionKind kKind = OptionKind::kWord;
  static constexpr uint32_t kScale = 1;
  static constexpr double Largest() { return kNoLimit; }
  static Value From(T member) { return static_cast<uint64_t>(member); }
  static bool To(Value value, T* member) {
    *member = static_cast<T>(value);
    return true;
  }
};

template <typename Form, auto kFirst, auto... kInner>
struct Bound {
  using Options = Owner<kFirst>;
  static OptionValue Get(const Options& options) {
    const auto& member = At<kFirst, kInner...>(options);
    if (IsUnset(member)) return std::monostate();
    return Form::From(member);
  }
  static bool Set(Options& options, const OptionValue& value) {
    const auto* const given = std::get_if<typename Form::Value>(&value);
    return given != nullptr && Form::To(*given, &At<kFirst, kInner...>(options));
  }
  static constexpr OptionMember<Options> Of() {
    return {Form::kKind, Form::kScale, Form::Largest(), &Get, &Set};
  }
};

template <auto kFirst, auto... kInner>
using TypeAt = std::remove_cvref_t<decltype(At<kFirst, kInner...>(std::declval<Owner<kFirst>&>()))>;

inline double Nearest(double parts) { return std::round(parts); }
inline double Up(double parts) { return std::ceil(parts); }

}  // namespace option_internal

// As it is given.
template <auto kFirst, auto... kInner>
constexpr auto Member() {
  return option_internal::Bound<
      option_internal::Itself<option_internal::TypeAt<kFirst, kInner...>>, kFirst, kInner...>::Of();
}
// 1.25, kept as 1250.
template <auto kFirst, auto... kInner>
constexpr auto Thousandths() {
  using Form =
      option_internal::InParts<option_internal::TypeAt<kFirst, kInner...>, 1000, &option_internal::Nearest>;
  return option_internal::Bound<Form, kFirst, kInner...>::Of();
}
// Kept in milliseconds, rounded up, so that a tiny limit does not become 0.
template <auto kFirst, auto... kInner>
constexpr auto Seconds() {
  using Form =
      option_internal::InParts<option_internal::TypeAt<kFirst, kInner...>, 1000, &option_internal::Up>;
  return option_internal::Bound<Form, kFirst, kInner...>::Of();
}
// An enumeration or a bool, given as a word.
template <auto kFirst, auto... kInner>
constexpr auto Word() {
  return option_internal::Bound<
      option_internal::Numbered<option_internal::TypeAt<kFirst, kInner...>>, kFirst, kInner...>::Of();
}

// The same for numbers up to `largest`.
template <typename Options>
constexpr OptionMember<Options> UpTo(double largest, OptionMember<Options> member) {
  member.largest = largest;
  return member;
}

// ---- What tables are for ---------------------------------------------------------------------------------

std::string Listed(std::span<const std::string_view> names);
// `name` is `word`, which is none of `words`; and which of them may have been meant.
Status WordIsUnknown(std::string_view name, std::string_view word, std::span<const std::string_view> words);
// The number of `word`. Unimplemented for a word that is not built; InvalidArgument for one that is unknown.
StatusOr<uint64_t> NumberOf(std::string_view word, std::string_view name, std::span<const OptionWord> words);
bool IsAbove(double largest, const OptionValue& value);
// InvalidArgument names the option, `value`, the range and the default.
Status CheckRange(
    std::string_view name, const OptionRange& range, uint32_t scale, const OptionValue& value,
    const OptionValue& usual);

// Unset leaves the member as it is. OutOfRange: the value is of another type, or too large for the member;
// a range is checked by CheckRanges().
template <typename Options>
Status SetOption(const OptionSpec<Options>& spec, const OptionValue& value, Options* options) {
  if (std::holds_alternative<std::monostate>(value)) return absl::OkStatus();
  OptionValue meant = value;
  if (const auto* word = std::get_if<std::string>(&value); word != nullptr && !spec.words.empty()) {
    const StatusOr<uint64_t> number = NumberOf(*word, spec.name, spec.words);
    if (!number.ok()) return number.status();
    meant = *number;
  }
  if (!IsAbove(spec.member.largest, meant) && spec.member.set(*options, meant)) return absl::OkStatus();
  return absl::OutOfRangeError(std::string(spec.name) + " is not of its type or range");
}

template <typename Options>
Status CheckRanges(const OptionTable<Options>& table, const Options& options) {
  static const Options usual;
  for (const OptionSpec<Options>& spec : table) {
    ROUTER_RETURN_IF_ERROR(CheckRange(
        spec.name, spec.range, spec.member.scale, spec.member.get(options), spec.member.get(usual)));
  }
  return absl::OkStatus();
}

// Null if there is none.
template <typename Options>
const OptionSpec<Options>* FindOption(const OptionTable<Options>& table, std::string_view name) {
  for (const OptionSpec<Options>& spec : table) {
    if (spec.name == name) return &spec;
  }
  return nullptr;
}

}  // namespace vllm_router
