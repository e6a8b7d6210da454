#include "proxy/cors.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {
namespace {

const HeaderField* Find(const RequestHead& head, std::string_view name) {
  const HeaderField* found = nullptr;
  for (const HeaderField& field : head.fields) {
    if (field.name.size() != name.size() || !EqualsIgnoreCase(field.name, name)) continue;
    if (found != nullptr) return nullptr;
    found = &field;
  }
  return found;
}

}  // namespace

Cors::Cors(std::vector<std::string> allowed_origins) : allowed_(std::move(allowed_origins)) {}

std::string_view Cors::OriginOf(const RequestHead& head) {
  const HeaderField* origin = Find(head, "origin");
  return origin == nullptr ? std::string_view() : origin->value;
}

bool Cors::IsPreflight(const RequestHead& head) {
  return head.method == "OPTIONS" && !OriginOf(head).empty() &&
         Find(head, "access-control-request-method") != nullptr;
}

std::vector<HeaderField> Cors::FieldsFor(std::string_view origin, Access access, bool preflight) const {
  std::vector<HeaderField> fields;
  if (!allowed_.empty()) {
    fields.push_back(
        {"Vary",
         preflight ? "Origin, Access-Control-Request-Method, Access-Control-Request-Headers" : "Origin"});
  }
  if (origin.empty()) return fields;
  const bool any = allowed_.empty();
  const bool allowed =
      any ? access != Access::kAdmin : std::find(allowed_.begin(), allowed_.end(), origin) != allowed_.end();
  if (!allowed) return fields;
  fields.push_back({"Access-Control-Allow-Origin", any ? std::string_view("*") : origin});
  if (preflight) {
    fields.push_back({"Access-Control-Allow-Methods", any ? "*" : "GET, POST, OPTIONS"});
    // A star does not stand for Authorization.
    fields.push_back(
        {"Access-Control-Allow-Headers", any ? "*, authorization" : "content-type, authorization"});
    fields.push_back({"Access-Control-Max-Age", "3600"});
  } else {
    fields.push_back({"Access-Control-Expose-Headers", any ? "*" : "x-request-id"});
  }
  return fields;
}

}  // namespace vllm_router
