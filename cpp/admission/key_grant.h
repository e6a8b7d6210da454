// KeyGrant: what a key's owner may claim, by the attributes behind the key in its file, or by the validator of keys.
//
//   sk-search-2d11…    tenant=search max_class=interactive
//   sha256:6ca13d52…   tenant=nightly class=batch
//   sha256:99a0…       tenant=gateway trusted
//
// Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "admission/priority_class.h"
#include "base/status.h"

namespace vllm_router {

struct KeyGrant {
  std::string tenant = {};                           // empty: the key is a tenant of its own
  std::optional<PriorityClass> priority_class = {};  // of requests that claim none
  std::optional<PriorityClass> max_class = {};       // the highest that they may claim
  bool trusted = false;                              // its requests' headers name tenants and any class

  PriorityClass highest() const {
    return max_class.value_or(priority_class.value_or(PriorityClass::kDefault));
  }
  bool empty() const { return *this == KeyGrant{}; }
  bool operator==(const KeyGrant&) const = default;
};

// Of attributes with blanks between them. InvalidArgument says which one is wrong, by its name or its number, and never
// shows what may be a key.
StatusOr<KeyGrant> ParseKeyAttributes(std::string_view text);

// Of the fields X-Tenant and X-Max-Class of a validator's response. A field that occurs twice, is empty, or names an unknown
// class says nothing.
KeyGrant GrantInHeaders(std::span<const HeaderField> fields);

}  // namespace vllm_router
