#include "admission/tenant_name.h"

#include <algorithm>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kOfKey = "key:";
constexpr std::string_view kOfText = "hash:";
constexpr size_t kKeyDigits = 16;
constexpr size_t kTextDigits = 32;

bool IsPlain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("._-@/").find(c) != std::string_view::npos;
}

std::string Digits(std::string_view prefix, const Digest256& digest, size_t count) {
  return Concat(prefix, std::string_view(DigestHex(digest)).substr(0, count));
}

}  // namespace

bool IsTenantName(std::string_view text) {
  return !text.empty() && text.size() <= kMaxTenantBytes && text != kOtherTenants &&
         std::ranges::all_of(text, &IsPlain);
}

bool IsTenant(std::string_view text) {
  const auto is_digits = [text](std::string_view prefix, size_t count) {
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    return text.size() == prefix.size() + count && text.starts_with(prefix) &&
           std::ranges::all_of(text.substr(prefix.size()), is_digit);
  };
  return IsTenantName(text) || is_digits(kOfKey, kKeyDigits) || is_digits(kOfText, kTextDigits);
}

std::string TenantNamed(std::string_view text) {
  return IsTenantName(text) ? std::string(text) : Digits(kOfText, Sha256({text}), kTextDigits);
}

std::string TenantOfKey(const Digest256& key) { return Digits(kOfKey, key, kKeyDigits); }

TenantClaim TenantInHeaders(std::span<const HeaderField> fields, std::string_view name) {
  TenantClaim claim;
  for (const HeaderField& field : fields) {
    if (!EqualsIgnoreCase(field.name, name)) continue;
    const std::string_view value = TrimBlanks(field.value);
    if (value.empty()) continue;
    if (claim.fields++ == 0) claim.value = value;
  }
  return claim;
}

}  // namespace vllm_router
