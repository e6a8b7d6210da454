#include "routing/body_map.h"

#include <algorithm>

#include <absl/container/inlined_vector.h>

#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

constexpr size_t kUsualMembers = 16;
constexpr size_t kLongestEscape = 6;  // \u0061, for each byte of UTF-8 at most

BodyMap::Type TypeOf(std::string_view value) {
  using Type = BodyMap::Type;
  switch (value.front()) {
    case '"':
      return Type::kString;
    case '[':
      return Type::kArray;
    case '{':
      return Type::kObject;
    case 'n':
      return value == "null" ? Type::kNull : Type::kOther;
    case 't':
      return value == "true" ? Type::kTrue : Type::kOther;
    case 'f':
      return value == "false" ? Type::kFalse : Type::kOther;
    default:
      return IsJsonNumber(value) ? Type::kNumber : Type::kOther;
  }
}

// Past the next string, which is `text`. False: there is none.
bool TakeString(JsonScanner* scanner, std::string_view body, std::string_view* text) {
  if (scanner->Peek() != '"') return false;
  const size_t begin = scanner->at() + 1;
  if (!scanner->SkipString()) return false;
  *text = body.substr(begin, scanner->at() - 1 - begin);
  return true;
}

bool TakeValue(JsonScanner* scanner, std::string_view body, std::string_view* value) {
  scanner->SkipBlanks();
  const size_t begin = scanner->at();
  if (!scanner->SkipValue()) return false;
  *value = body.substr(begin, scanner->at() - begin);
  return true;
}

}  // namespace

std::optional<std::string_view> BodyMap::Member::Name(std::string* scratch) const {
  if (!escaped) return name;
  if (name.size() > kMaxEscapedName) return std::nullopt;
  std::optional<std::string> unescaped = UnescapedJson(name);
  if (!unescaped) return std::nullopt;
  *scratch = *std::move(unescaped);
  return *scratch;
}

bool BodyMap::Member::Means(std::string_view other) const {
  std::string scratch;
  return Name(&scratch) == other;
}

bool BodyMap::Member::Holds(std::string_view text) const {
  if (type != Type::kString) return false;
  const std::string_view spelled = value.substr(1, value.size() - 2);
  if (spelled == text) return true;
  const bool may_mean_it = spelled.size() > text.size() && spelled.size() <= kLongestEscape * text.size();
  return may_mean_it && UnescapedJson(spelled) == text;
}

std::optional<std::string> BodyMap::Member::Text() const {
  if (type != Type::kString) return std::nullopt;
  return UnescapedJson(value.substr(1, value.size() - 2));
}

BodyMap BodyMap::Read(std::string_view body) {
  BodyMap map(body);
  map.ReadMembers();
  if (!map.ok()) map.members_.clear();
  return map;
}

void BodyMap::ReadMembers() {
  JsonScanner scanner(body_);
  scanner.SkipByteOrderMark();
  const bool closed = scanner.Take('{') && (scanner.Take('}') || TakeMembers(&scanner));
  if (closed && scanner.AtEnd()) problem_ = Problem::kNone;
  problem_at_ = scanner.at();
}

bool BodyMap::TakeMembers(JsonScanner* scanner) {
  members_.reserve(kUsualMembers);
  do {
    if (members_.size() == kMaxMembers) {
      problem_ = Problem::kTooManyMembers;
      return false;
    }
    Member member{};
    if (!TakeString(scanner, body_, &member.name) || !scanner->Take(':')) return false;
    if (!TakeValue(scanner, body_, &member.value)) return false;
    member.type = TypeOf(member.value);
    member.escaped = member.name.find('\\') != std::string_view::npos;
    members_.push_back(member);
  } while (scanner->Take(','));
  return scanner->Take('}');
}

const BodyMap::Member* BodyMap::Find(std::string_view name) const {
  const auto found = std::find_if(
      members_.rbegin(), members_.rend(), [name](const Member& member) { return member.Is(name); });
  return found == members_.rend() ? nullptr : &*found;
}

bool BodyMap::HasOddNames() const {
  absl::InlinedVector<std::string_view, kUsualMembers> names;
  names.reserve(members_.size());
  for (const Member& member : members_) {
    if (member.escaped) return true;
    names.push_back(member.name);
  }
  std::ranges::sort(names);
  return std::ranges::adjacent_find(names) != names.end();
}

size_t BodyMap::Count(std::string_view name) const {
  return static_cast<size_t>(
      std::ranges::count_if(members_, [name](const Member& member) { return member.Is(name); }));
}

}  // namespace vllm_router
