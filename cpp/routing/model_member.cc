#include "routing/model_member.h"

#include <cstring>
#include <optional>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  void SkipBlanks() {
    while (at_ < text_.size() && kBlanks.find(text_[at_]) != std::string_view::npos) ++at_;
  }
  bool Take(char c) {
    SkipBlanks();
    if (at_ == text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  char Peek() {
    SkipBlanks();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  size_t at() const { return at_; }

  // Behind the closing quote. REQUIRES: at an opening one. False: it does not end.
  bool SkipString() {
    ++at_;
    while (at_ < text_.size()) {
      const void* const found = std::memchr(text_.data() + at_, '"', text_.size() - at_);
      if (found == nullptr) break;
      const auto quote = static_cast<size_t>(static_cast<const char*>(found) - text_.data());
      size_t backslashes = 0;
      while (quote > at_ + backslashes && text_[quote - 1 - backslashes] == '\\') ++backslashes;
      at_ = quote + 1;
      if (backslashes % 2 == 0) return true;
    }
    at_ = text_.size();
    return false;
  }

  // Behind a value of any type. False: it does not end.
  bool SkipValue() {
    const char first = Peek();
    if (first == '"') return SkipString();
    if (first != '{' && first != '[') {
      const size_t end = text_.find_first_of(",}] \t\r\n", at_);
      if (end == at_) return false;
      at_ = end == std::string_view::npos ? text_.size() : end;
      return end != std::string_view::npos;
    }
    size_t depth = 0;
    while (at_ < text_.size()) {
      const size_t next = text_.find_first_of("\"{}[]", at_);
      if (next == std::string_view::npos) break;
      at_ = next;
      if (text_[at_] == '"') {
        if (!SkipString()) return false;
        continue;
      }
      const bool opens = text_[at_] == '{' || text_[at_] == '[';
      ++at_;
      if (opens) {
        ++depth;
      } else if (--depth == 0) {
        return true;
      }
    }
    at_ = text_.size();
    return false;
  }

 private:
  const std::string_view text_;
  size_t at_ = 0;
};

void AppendUtf8(uint32_t code, std::string* out) {
  const auto put = [out](uint32_t byte) { out->push_back(static_cast<char>(byte)); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6);
    put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18);
    put(0x80 | (code >> 12 & 0x3f));
    put(0x80 | (code >> 6 & 0x3f));
    put(0x80 | (code & 0x3f));
  }
}

std::optional<uint32_t> FourHex(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  uint32_t code = 0;
  for (size_t i = at; i < at + 4; ++i) {
    const int digit = HexDigit(text[i]);
    if (digit < 0) return std::nullopt;
    code = code << 4 | static_cast<uint32_t>(digit);
  }
  return code;
}

// Of what stands between the quotes. Nullopt for a bad escape or a lone surrogate.
std::optional<std::string> Unescaped(std::string_view text) {
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kMeanings = "\"\\/\b\f\n\r\t";
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out.push_back(text[i]);
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (const size_t plain = kEscapes.find(text[i]); plain != std::string_view::npos) {
      out.push_back(kMeanings[plain]);
      continue;
    }
    if (text[i] != 'u') return std::nullopt;
    std::optional<uint32_t> code = FourHex(text, i + 1);
    if (!code || (*code >= 0xdc00 && *code < 0xe000)) return std::nullopt;
    i += 4;
    if (*code >= 0xd800 && *code < 0xdc00) {
      if (text.substr(i + 1, 2) != "\\u") return std::nullopt;
      const std::optional<uint32_t> low = FourHex(text, i + 3);
      if (!low || *low < 0xdc00 || *low >= 0xe000) return std::nullopt;
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
      i += 6;
    }
    AppendUtf8(*code, &out);
  }
  return out;
}

bool IsModel(std::string_view name) {
  constexpr std::string_view kModel = "model";
  if (name.find('\\') == std::string_view::npos) return name == kModel;
  if (name.size() > 6 * kModel.size()) return false;
  const std::optional<std::string> unescaped = Unescaped(name);
  return unescaped && *unescaped == kModel;
}

void SetValue(std::string_view value, size_t offset, ModelMember* found) {
  found->name.clear();
  found->offset = offset;
  found->length = value.size();
  found->kind = ModelMember::Kind::kOther;
  if (value == "null") found->kind = ModelMember::Kind::kMissing;
  if (value.size() < 2 || value.front() != '"') return;
  std::optional<std::string> name = Unescaped(value.substr(1, value.size() - 2));
  if (!name) return;
  found->kind = name->empty() ? ModelMember::Kind::kMissing : ModelMember::Kind::kName;
  found->name = *std::move(name);
}

// The value of a parameter of a header's value, without its quotes.
std::string_view ParameterOf(std::string_view value, std::string_view name) {
  size_t at = value.find(';');
  while (at != std::string_view::npos) {
    std::string_view rest = TrimBlanks(value.substr(at + 1));
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) return {};
    const std::string_view key = rest.substr(0, equals);
    std::string_view text = rest.substr(equals + 1);
    size_t end = text.find(';');
    if (!text.empty() && text.front() == '"') {
      text.remove_prefix(1);
      end = text.find('"');
    }
    if (EqualsIgnoreCase(key, name)) return text.substr(0, end);
    if (end == std::string_view::npos) return {};
    const auto next = static_cast<size_t>(text.data() - value.data()) + end;
    at = value.find(';', next);
  }
  return {};
}

}  // namespace

ModelMember FindModelMember(std::string_view body) {
  ModelMember found;
  Scanner scanner(body);
  if (!scanner.Take('{')) return found;
  found.kind = ModelMember::Kind::kMissing;
  if (scanner.Take('}')) {
    found.whole = true;
    return found;
  }
  do {
    if (scanner.Peek() != '"') return found;
    const size_t name_at = scanner.at() + 1;
    if (!scanner.SkipString()) return found;
    const std::string_view name = body.substr(name_at, scanner.at() - 1 - name_at);
    if (!scanner.Take(':')) return found;
    scanner.SkipBlanks();
    const size_t value_at = scanner.at();
    if (!scanner.SkipValue()) return found;
    if (IsModel(name)) SetValue(body.substr(value_at, scanner.at() - value_at), value_at, &found);
  } while (scanner.Take(','));
  found.whole = scanner.Take('}');
  return found;
}

ModelMember FindModelInForm(std::string_view content_type, std::string_view body) {
  ModelMember found;
  const std::string_view boundary = ParameterOf(content_type, "boundary");
  if (boundary.empty() || boundary.size() > 70) return found;
  const std::string delimiter = Concat("--", boundary);
  size_t at = body.find(delimiter);
  if (at != 0) return found;
  found.kind = ModelMember::Kind::kMissing;
  found.quoted = false;
  const std::string separator = Concat("\r\n", delimiter);
  while (true) {
    const size_t head = at + delimiter.size();
    if (body.substr(head, 2) == "--") {
      found.whole = true;
      return found;
    }
    const size_t head_end = body.find("\r\n\r\n", head);
    if (head_end == std::string_view::npos) return found;
    const size_t value = head_end + 4;
    const size_t end = body.find(separator, value);
    if (end == std::string_view::npos) return found;
    std::string_view fields = body.substr(head, head_end - head);
    while (!fields.empty()) {
      const size_t line_end = fields.find("\r\n");
      const std::string_view line = fields.substr(0, line_end);
      const size_t colon = line.find(':');
      if (colon != std::string_view::npos && EqualsIgnoreCase(line.substr(0, colon), "content-disposition") &&
          ParameterOf(line.substr(colon + 1), "name") == "model") {
        found.name = std::string(body.substr(value, end - value));
        found.kind = found.name.empty() ? ModelMember::Kind::kMissing : ModelMember::Kind::kName;
        found.offset = value;
        found.length = end - value;
      }
      if (line_end == std::string_view::npos) break;
      fields.remove_prefix(line_end + 2);
    }
    at = end + 2;
  }
}

}  // namespace vllm_router
