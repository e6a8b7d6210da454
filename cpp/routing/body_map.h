// BodyMap: where the top-level members of a JSON object stand in its text.
//
//   {"model": "m", "max_t\u006fkens": 7, "prompt": ["hi"]}
//     ~~~~~   ~~~   ~~~~~~~~~~~~~~~   ~    ~~~~~~   ~~~~~~      name and value of each, as views
//
// It is for edits that leave every other byte alone (body_patch.h), and for the few looks at values that such edits
// need. Members are in the body's order, duplicates included; a name with escapes is compared unescaped.
//
// What is checked: braces, quotes, colons, and that between two members there is one comma and blanks, and after the
// object nothing but blanks. What is not: the inside of values, beyond strings that end and as many brackets closed
// as opened. So `{"a": [}, "b": tru, "c": "\x"}` is an object of three members here. That is safe, since the worker
// parses the bytes again: if a text made of untouched members is JSON, then every member ends where this map says.
// A byte order mark in front is skipped, as Python's json does; what that takes beyond UTF-8, UTF-16 and 32, is no object
// here.
//
// Cost: one pass over the text and one allocation; no copy, no padding behind the text, no recursion. A body may have
// any length. It may have kMaxMembers members, far more than any engine knows names; so memory stays below 64 KiB.
// Immutable; any thread. The text must outlive the map and all that is made from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

class JsonScanner;

class BodyMap {
 public:
  static constexpr size_t kMaxMembers = 1024;
  // A longer name that has escapes equals no name.
  static constexpr size_t kMaxEscapedName = 256;

  enum class Problem : uint8_t { kNone, kNotAnObject, kTooManyMembers };
  // By its spelling; kOther is no JSON, such as Python's NaN.
  enum class Type : uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject, kOther };

  struct Member {
    std::string_view name;   // as spelled, without its quotes
    std::string_view value;  // a string with its quotes
    Type type;
    bool escaped;  // the name is spelled with escapes

    // The unescaped name; `scratch` holds it if it has escapes. nullopt if it means no text.
    std::optional<std::string_view> Name(std::string* scratch) const;
    bool Is(std::string_view other) const { return escaped ? Means(other) : name == other; }
    // The value is a string that means this text.
    bool Holds(std::string_view text) const;
    // What a string means; nullopt for any other value, a bad escape or a lone surrogate.
    std::optional<std::string> Text() const;

   private:
    bool Means(std::string_view other) const;
  };

  static BodyMap Read(std::string_view body);

  bool ok() const { return problem_ == Problem::kNone; }
  Problem problem() const { return problem_; }
  size_t problem_at() const { return problem_at_; }  // the byte where reading stopped

  std::string_view body() const { return body_; }
  std::span<const Member> members() const { return members_; }  // empty unless ok()
  // The last one of the name, which counts in Python's json; nullptr if there is none.
  const Member* Find(std::string_view name) const;
  size_t Count(std::string_view name) const;
  // Two names are equal, or one has an escape: legal JSON that parsers may read differently.
  bool HasOddNames() const;

 private:
  explicit BodyMap(std::string_view body) : body_(body) {}
  void ReadMembers();
  bool TakeMembers(JsonScanner* scanner);

  std::string_view body_;
  std::vector<Member> members_;
  Problem problem_ = Problem::kNotAnObject;
  size_t problem_at_ = 0;
};

}  // namespace vllm_router
