#include "admission/priority_class.h"

#include <array>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, kPriorityClasses> kClassNames = {"interactive", "default", "batch"};

// Of other routers and gateways.
constexpr std::string_view kSmgHeader = "x-smg-priority";
constexpr std::array<std::string_view, 4> kHeaders = {
    "x-llm-d-inference-objective", "x-gateway-inference-objective", "x-dynamo-inference-objective",
    kSmgHeader};

bool NamesClass(std::string_view name) {
  return name.size() >= kSmgHeader.size() && (name[0] == 'x' || name[0] == 'X') &&
         std::ranges::any_of(
             kHeaders, [name](std::string_view header) { return EqualsIgnoreCase(name, header); });
}

// smg's two names that are no class here.
std::optional<PriorityClass> SmgClass(std::string_view value) {
  if (EqualsIgnoreCase(value, "bulk")) return PriorityClass::kBatch;
  if (EqualsIgnoreCase(value, "system")) return PriorityClass::kInteractive;
  return std::nullopt;
}

}  // namespace

std::string_view PriorityClassName(PriorityClass priority_class) {
  return kClassNames[static_cast<size_t>(priority_class)];
}

std::optional<PriorityClass> PriorityClassByName(std::string_view name) {
  for (size_t i = 0; i < kClassNames.size(); ++i) {
    if (EqualsIgnoreCase(name, kClassNames[i])) return static_cast<PriorityClass>(i);
  }
  return std::nullopt;
}

HeaderClaim ClassInHeaders(std::span<const HeaderField> fields) {
  HeaderClaim claim;
  for (const HeaderField& field : fields) {
    if (!NamesClass(field.name)) continue;
    const std::string_view value = TrimBlanks(field.value);
    if (value.empty()) continue;
    std::optional<PriorityClass> named = PriorityClassByName(value);
    if (!named && EqualsIgnoreCase(field.name, kSmgHeader)) named = SmgClass(value);
    if (!named) ++claim.unknown;
    const PriorityClass one = named.value_or(PriorityClass::kDefault);
    claim.claimed = LowerOf(claim.claimed.value_or(one), one);
  }
  return claim;
}

std::optional<PriorityClass> ClassOfServiceTier(std::string_view tier) {
  if (tier == "flex") return PriorityClass::kBatch;
  if (tier == "priority" || tier == "fast") return PriorityClass::kInteractive;
  return std::nullopt;
}

ClassGrant GrantClass(const ClassClaims& claims, const ClassLimit& limit) {
  ClassGrant grant;
  for (const std::optional<PriorityClass>& claim : {claims.headers, claims.service_tier, claims.alias}) {
    if (!claim) continue;
    grant.claimed = claim;
    break;
  }
  const PriorityClass wanted = grant.claimed.value_or(claims.key.value_or(PriorityClass::kDefault));
  const bool is_free = claims.headers.has_value() && limit.trusts_headers;
  grant.given = is_free ? wanted : LowerOf(wanted, limit.highest);
  grant.clamped = grant.claimed.has_value() && grant.given != wanted;
  return grant;
}

}  // namespace vllm_router
