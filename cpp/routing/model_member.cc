#include "routing/model_member.h"

#include <optional>

#include "base/text.h"
#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

bool IsModel(std::string_view name) {
  constexpr std::string_view kModel = "model";
  if (name.find('\\') == std::string_view::npos) return name == kModel;
  if (name.size() > 6 * kModel.size()) return false;
  const std::optional<std::string> unescaped = UnescapedJson(name);
  return unescaped && *unescaped == kModel;
}

void SetValue(std::string_view value, size_t offset, ModelMember* found) {
  found->name.clear();
  found->offset = offset;
  found->length = value.size();
  found->kind = ModelMember::Kind::kOther;
  if (value == "null") found->kind = ModelMember::Kind::kMissing;
  if (value.size() < 2 || value.front() != '"') return;
  std::optional<std::string> name = UnescapedJson(value.substr(1, value.size() - 2));
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
  JsonScanner scanner(body);
  scanner.SkipByteOrderMark();
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

bool IsForm(std::string_view content_type) {
  constexpr std::string_view kMultipart = "multipart/";
  return EqualsIgnoreCase(content_type.substr(0, kMultipart.size()), kMultipart);
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
