// What frames and snapshots of routers with a secret have in common: the key that each is sealed with, and what is
// said of one that cannot be opened. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/text.h"
#include "hashing/aead.h"

namespace vllm_router {

// Of one router and kind of message: numbers of others never meet under it.
inline Digest256 SealKey(std::string_view secret, std::string_view magic, uint64_t router) {
  return HmacSha256(
      secret, Concat(magic, std::string_view(reinterpret_cast<const char*>(&router), sizeof(router))));
}

inline Status CheckSealed(std::string_view what, bool sealed, std::string_view secret) {
  if (sealed == !secret.empty()) return absl::OkStatus();
  return absl::PermissionDeniedError(
      sealed ? Concat("the ", what, " is sealed with a secret, and this router has none")
             : Concat("the ", what, " is not sealed, and this router has a secret"));
}

// A view of `opened`, which gets the message with its head.
inline StatusOr<std::string_view> Unsealed(
    std::string_view what, const Digest256& key, uint64_t number, size_t head_bytes, std::string_view message,
    std::string* opened) {
  *opened = message;
  if (AeadOpen(key, number, head_bytes, opened)) return *opened;
  return absl::PermissionDeniedError(
      Concat("the ", what, " was sealed with another secret than this router's, or changed on its way"));
}

}  // namespace vllm_router
