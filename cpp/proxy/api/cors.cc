#include "proxy/api/cors.h"

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

Cors::Cors(std::vector<std::string> allowed_origins)
    : allowed_(std::move(allowed_origins)), named_(allowed_) {
  any_ = std::erase(named_, "*") > 0;
}

bool Cors::IsNamed(std::string_view origin) const {
  return std::find(named_.begin(), named_.end(), origin) != named_.end();
}

// Browsers send each header once. If one occurs several times, every value must pass.
bool Cors::IsCrossSite(std::span<const HeaderField> fields) const {
  bool has_origin = false;
  bool fetched_elsewhere = false;
  for (const HeaderField& field : fields) {
    if (field.name.size() == 6 && EqualsIgnoreCase(field.name, "origin")) {
      if (!IsNamed(field.value)) return true;
      has_origin = true;
    } else if (field.name.size() == 14 && EqualsIgnoreCase(field.name, "sec-fetch-site")) {
      fetched_elsewhere |=
          !EqualsIgnoreCase(field.value, "same-origin") && !EqualsIgnoreCase(field.value, "none");
    }
  }
  return fetched_elsewhere && !has_origin;
}

bool Cors::MayOpenWebSocket(const RequestHead& head) const {
  return any_ || std::ranges::all_of(head.fields, [&](const HeaderField& field) {
           if (field.name.size() != 6 || !EqualsIgnoreCase(field.name, "origin") || IsNamed(field.value))
             return true;
           const size_t host = field.value.find("://");
           return host != std::string_view::npos &&
                  EqualsIgnoreCase(field.value.substr(host + 3), head.authority);
         });
}

std::string_view Cors::OriginOf(const RequestHead& head) {
  const HeaderField* origin = Find(head, "origin");
  return origin == nullptr ? std::string_view() : origin->value;
}

bool Cors::IsPreflight(const RequestHead& head) {
  return head.method == "OPTIONS" && !OriginOf(head).empty() &&
         Find(head, "access-control-request-method") != nullptr;
}

std::string_view Cors::AllowedFor(std::string_view origin, Access access) const {
  if (origin.empty()) return {};
  if (IsNamed(origin)) return origin;
  return any_ && access != Access::kAdmin ? "*" : std::string_view();
}

// Credentials of the browser's own are never allowed, so a star stands for every header here.
std::vector<HeaderField> Cors::FieldsFor(std::string_view origin, Access access) const {
  std::vector<HeaderField> fields;
  if (!named_.empty()) fields.push_back({"Vary", "Origin"});
  const std::string_view allowed = AllowedFor(origin, access);
  if (allowed.empty()) return fields;
  fields.push_back({"Access-Control-Allow-Origin", allowed});
  fields.push_back({"Access-Control-Expose-Headers", "*"});
  return fields;
}

std::vector<HeaderField> Cors::PreflightFieldsFor(
    const RequestHead& head, Access access, std::string_view methods) const {
  std::vector<HeaderField> fields;
  if (!named_.empty()) {
    fields.push_back({"Vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers"});
  }
  const std::string_view allowed = AllowedFor(OriginOf(head), access);
  if (allowed.empty()) return fields;
  const bool named = allowed != "*";
  const HeaderField* const asked = Find(head, "access-control-request-headers");
  const bool asks = asked != nullptr && !asked->value.empty();
  fields.push_back({"Access-Control-Allow-Origin", allowed});
  fields.push_back({"Access-Control-Allow-Methods", named ? methods : "*"});
  // A star does not cover Authorization.
  fields.push_back(
      {"Access-Control-Allow-Headers", !named ? "*, authorization"
                                       : asks ? asked->value
                                              : "content-type, authorization"});
  fields.push_back({"Access-Control-Max-Age", "3600"});
  return fields;
}

}  // namespace vllm_router
