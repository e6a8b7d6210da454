// Names of tenants: who shares a fleet and is accounted for. They stand in logs, spans and labels of metrics, so they are
// short and plain: letters, digits and . _ - @ / at most 64 bytes of them.
//
//   search              as a key file, a validator or a trusted peer says
//   key:6ca13d52ca70c883    a key without a tenant: the first eight bytes of its SHA-256
//   hash:3f8e…          a text that is no such name: sixteen bytes of its SHA-256, so two of them stay two tenants
//   anonymous           without a key
//
// A name has no colon, so no tenant can be called like another one's key. Pure; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/header_field.h"
#include "hashing/sha256.h"

namespace vllm_router {

inline constexpr size_t kMaxTenantBytes = 64;
inline constexpr std::string_view kAnonymousTenant = "anonymous";
// In metrics all tenants without a label of their own.
inline constexpr std::string_view kOtherTenants = "other";

// "other" is none.
bool IsTenantName(std::string_view text);
// A name, or what stands for a key or a text.
bool IsTenant(std::string_view text);
// The text, or the name that stands for it. REQUIRES: it is not empty.
std::string TenantNamed(std::string_view text);
std::string TenantOfKey(const Digest256& key);

// What the header `name` says of the tenant.
struct TenantClaim {
  size_t fields = 0;       // with a value; several say nothing
  std::string_view value;  // of the first one, without blanks at its ends
};
TenantClaim TenantInHeaders(std::span<const HeaderField> fields, std::string_view name);

}  // namespace vllm_router
