#include "proxy/security/authorizer.h"

#include "base/text.h"
#include "http/websocket_protocols.h"

namespace vllm_router {

std::optional<std::string_view> KeyOf(const RequestHead& head) {
  constexpr std::string_view kScheme = "bearer ";
  std::string_view bearer;
  std::string_view plain;
  std::string_view azure;
  std::string_view protocol;
  // False if one is there already: nobody knows which of them is meant.
  const auto set = [](std::string_view* key, std::string_view value) {
    const bool is_first = key->empty();
    *key = value;
    return is_first;
  };
  for (const HeaderField& field : head.fields) {
    if (field.name.size() == 13 && EqualsIgnoreCase(field.name, "authorization")) {
      const bool is_bearer = field.value.size() > kScheme.size() &&
                             EqualsIgnoreCase(field.value.substr(0, kScheme.size()), kScheme);
      if (!is_bearer || !set(&bearer, TrimBlanks(field.value.substr(kScheme.size())))) return std::nullopt;
    } else if (field.name.size() == 9 && EqualsIgnoreCase(field.name, "x-api-key")) {
      if (!set(&plain, field.value)) return std::nullopt;
    } else if (field.name.size() == 7 && EqualsIgnoreCase(field.name, "api-key")) {
      if (!set(&azure, field.value)) return std::nullopt;
    } else if (
        head.websocket && field.name.size() == 22 && EqualsIgnoreCase(field.name, "sec-websocket-protocol")) {
      const std::optional<std::string_view> key = KeyOfProtocols(field.value);
      if (!key.has_value() || (!key->empty() && !set(&protocol, *key))) return std::nullopt;
    }
  }
  for (const std::string_view key : {bearer, plain, azure}) {
    if (!key.empty()) return key;
  }
  return protocol;
}

Authorizer::Authorizer(const KeySets& keys) : validator_(keys.validator.get()), admin_port_(keys.admin_port) {
  if (keys.clients != nullptr) clients_.emplace(&keys.clients->keys());
  if (keys.admins != nullptr) admins_.emplace(&keys.admins->keys());
}

bool Authorizer::Serves(ListenerKind listener_kind, Access access) const {
  switch (listener_kind) {
    case ListenerKind::kPublic:
      return (access != Access::kAdmin && access != Access::kAdminPort) || !admin_port_;
    case ListenerKind::kAdmin:
      return access != Access::kClient;
    case ListenerKind::kMetrics:
      return access == Access::kAnybody;
  }
  return false;
}

std::optional<HttpError> Authorizer::Rejects(
    Access access, ListenerKind listener_kind, const RequestHead& head, std::optional<KeyMatch>* match) {
  if (access == Access::kAnybody) return std::nullopt;
  if (access == Access::kAdminPort) {
    if (admins_.has_value()) return std::nullopt;
    access = Access::kAdmin;  // without keys of their own, admins may be shut out
  }
  std::optional<Cached>& keys = access == Access::kAdmin ? admins_ : clients_;
  const bool judged = access == Access::kClient && validator_ != nullptr;
  if (!keys.has_value() && !judged) {
    const bool shut =
        access == Access::kAdmin && listener_kind == ListenerKind::kPublic && takes_client_keys();
    return shut ? std::optional(HttpError::kAdminClosed) : std::nullopt;
  }
  const std::optional<std::string_view> key = KeyOf(head);
  if (key.has_value() && key->empty()) return HttpError::kMissingApiKey;
  if (!key.has_value() || !keys.has_value()) return HttpError::kInvalidApiKey;
  std::optional<KeyMatch> found = keys->Get()->Find(*key);
  if (!found.has_value()) return HttpError::kInvalidApiKey;
  if (match != nullptr && access == Access::kClient && tells_clients_apart()) *match = *std::move(found);
  return std::nullopt;
}

KeyValidator* Authorizer::ValidatorFor(Access access, HttpError refusal) const {
  return access == Access::kClient && refusal == HttpError::kInvalidApiKey ? validator_ : nullptr;
}

}  // namespace vllm_router
