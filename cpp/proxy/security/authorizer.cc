#include "proxy/security/authorizer.h"

#include "base/text.h"

namespace vllm_router {

std::optional<std::string_view> KeyOf(std::span<const HeaderField> fields) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view bearer;
  std::string_view plain;
  for (const HeaderField& field : fields) {
    if (field.name.size() == 13 && EqualsIgnoreCase(field.name, "authorization")) {
      const bool is_bearer = field.value.size() > kScheme.size() &&
                             EqualsIgnoreCase(field.value.substr(0, kScheme.size()), kScheme);
      if (!is_bearer || !bearer.empty()) return std::nullopt;
      bearer = TrimBlanks(field.value.substr(kScheme.size()));
    } else if (field.name.size() == 9 && EqualsIgnoreCase(field.name, "x-api-key")) {
      if (!plain.empty()) return std::nullopt;
      plain = field.value;
    }
  }
  return bearer.empty() ? plain : bearer;
}

Authorizer::Authorizer(const KeySets& keys) : validator_(keys.validator.get()), admin_port_(keys.admin_port) {
  if (keys.clients != nullptr) clients_.emplace(&keys.clients->keys());
  if (keys.admins != nullptr) admins_.emplace(&keys.admins->keys());
}

bool Authorizer::Serves(ListenerKind listener_kind, Access access) const {
  switch (listener_kind) {
    case ListenerKind::kPublic:
      return access != Access::kAdmin || !admin_port_;
    case ListenerKind::kAdmin:
      return access != Access::kClient;
    case ListenerKind::kMetrics:
      return access == Access::kAnybody;
  }
  return false;
}

std::optional<HttpError> Authorizer::Rejects(
    Access access, ListenerKind listener_kind, std::span<const HeaderField> fields) {
  if (access == Access::kAnybody) return std::nullopt;
  std::optional<Cached>& keys = access == Access::kAdmin ? admins_ : clients_;
  const bool judged = access == Access::kClient && validator_ != nullptr;
  if (!keys.has_value() && !judged) {
    const bool shut =
        access == Access::kAdmin && listener_kind == ListenerKind::kPublic && takes_client_keys();
    return shut ? std::optional(HttpError::kAdminClosed) : std::nullopt;
  }
  const std::optional<std::string_view> key = KeyOf(fields);
  if (key.has_value() && key->empty()) return HttpError::kMissingApiKey;
  const bool known = key.has_value() && keys.has_value() && (*keys).Get()->Contains(*key);
  if (!known) return HttpError::kInvalidApiKey;
  return std::nullopt;
}

KeyValidator* Authorizer::ValidatorFor(Access access, HttpError refusal) const {
  return access == Access::kClient && refusal == HttpError::kInvalidApiKey ? validator_ : nullptr;
}

}  // namespace vllm_router
