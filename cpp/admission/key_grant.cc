#include "admission/key_grant.h"

#include <algorithm>
#include <array>
#include <utility>

#include "admission/tenant_name.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, 4> kFields = {"tenant", "class", "max_class", "trusted"};
constexpr std::string_view kShownNames = "tenant=NAME, class=CLASS, max_class=CLASS and trusted";
constexpr size_t kLongestShown = 24;

template <typename... Parts>
Status Bad(const Parts&... parts) {
  return absl::InvalidArgumentError(Concat(parts...));
}

// A second key on the line must not be shown. What is written like an attribute, with a name of small letters, is none; what
// ends with signs alone may be base64.
bool MayShow(std::string_view name, std::string_view value) {
  return !value.empty() && value.front() != '=' && !name.empty() && name.size() <= kLongestShown &&
         std::ranges::all_of(name, [](char c) { return (c >= 'a' && c <= 'z') || c == '_'; });
}

Status Unknown(std::string_view name, std::string_view value, size_t number) {
  const std::string_view nearest = NearestName(name, kFields);
  return Bad(
      MayShow(name, value) ? Concat("the attribute ", name, "=")
                           : Concat("attribute ", number, " behind the key"),
      " is unknown; there are ", kShownNames,
      nearest.empty() ? std::string() : Concat(" (did you mean ", nearest, "?)"),
      ", and each key is on a line of its own");
}

Status ReadClass(std::string_view name, std::string_view value, std::optional<PriorityClass>* read) {
  *read = PriorityClassByName(value);
  if (read->has_value()) return absl::OkStatus();
  return Bad("the attribute ", name, " is ", Quoted(value), "; it must be ", kPriorityClassNames);
}

Status Take(std::string_view name, std::string_view value, KeyGrant* grant) {
  if (name == "class") return ReadClass(name, value, &grant->priority_class);
  if (name == "max_class") return ReadClass(name, value, &grant->max_class);
  if (!IsTenantName(value)) {
    return Bad(
        "the attribute tenant is ", Quoted(value), "; it must have 1 to ", kMaxTenantBytes,
        " letters, digits or . _ - @ / and must not be ", kOtherTenants,
        ", which metrics have for all further tenants");
  }
  grant->tenant = value;
  return absl::OkStatus();
}

}  // namespace

StatusOr<KeyGrant> ParseKeyAttributes(std::string_view text) {
  KeyGrant grant;
  std::array<bool, kFields.size()> taken{};
  for (size_t number = 1; !(text = TrimBlanks(text)).empty(); ++number) {
    const size_t end = std::min(text.find_first_of(" \t"), text.size());
    const std::string_view attribute = text.substr(0, end);
    text.remove_prefix(end);
    const size_t sign = std::min(attribute.find('='), attribute.size());
    const bool has_value = sign < attribute.size();
    const std::string_view name = attribute.substr(0, sign);
    const std::string_view value = has_value ? attribute.substr(sign + 1) : std::string_view();
    const auto known = std::ranges::find(kFields, name);
    if (known == kFields.end()) return Unknown(name, value, number);
    const bool is_switch = name == "trusted";
    if (is_switch && has_value)
      return Bad("the attribute trusted has a value; write trusted alone, or leave it out");
    if (!is_switch && value.empty())
      return Bad("the attribute ", name, " has no value; write ", name, "=VALUE without blanks");
    if (std::exchange(taken[static_cast<size_t>(known - kFields.begin())], true))
      return Bad("the attribute ", name, " is there twice; leave one of them");
    if (is_switch) {
      grant.trusted = true;
    } else {
      ROUTER_RETURN_IF_ERROR(Take(name, value, &grant));
    }
  }
  if (grant.priority_class && grant.max_class && *grant.priority_class < *grant.max_class) {
    return Bad(
        "class=", PriorityClassName(*grant.priority_class),
        " is above max_class=", PriorityClassName(*grant.max_class), "; raise max_class, or lower class");
  }
  return grant;
}

KeyGrant GrantInHeaders(std::span<const HeaderField> fields) {
  KeyGrant grant;
  if (const TenantClaim tenant = TenantInHeaders(fields, "x-tenant"); tenant.fields == 1)
    grant.tenant = TenantNamed(tenant.value);
  if (const TenantClaim highest = TenantInHeaders(fields, "x-max-class"); highest.fields == 1)
    grant.max_class = PriorityClassByName(highest.value);
  return grant;
}

}  // namespace vllm_router
