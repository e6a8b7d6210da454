// Gatekeeper: whether whoever sent a request may have it done.
//
//   path                         needs                       where
//   /health, /liveness, …        nothing                     every port
//   what goes to workers, models a client's key, if there    the main port
//                                is a file of them, or
//                                somebody to ask
//   fleet and /admin             an admin's key, likewise    the main port, or the admin port if there is one
//
// A key comes as `Authorization: Bearer KEY`, or as `x-api-key: KEY`, which clients of Anthropic's API send. Once
// clients need keys, admin paths on the main port are shut unless admins have keys of their own: what opens the
// models must not open the fleet.
//
// One per lane. Cost without keys: a comparison; with them, that of KeySet.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "base/header_field.h"
#include "base/snapshot.h"
#include "proxy/api/error_response.h"
#include "proxy/api/routes.h"
#include "proxy/security/key_file.h"
#include "proxy/security/key_validator.h"

namespace vllm_router {

// What a listener is for.
enum class Door : uint8_t { kPublic, kAdmin, kMetrics };

// The key of a request; empty if it has none, nullopt if one cannot tell which it is.
std::optional<std::string_view> KeyOf(std::span<const HeaderField> fields);

// Of the server; null: no such keys.
struct DoorKeys {
  std::unique_ptr<KeyFile> clients;
  std::unique_ptr<KeyFile> admins;
  std::unique_ptr<KeyJudge> judge;  // of clients' keys that are in no file
  bool admin_port = false;          // admin paths have a port of their own
};

class Gatekeeper {
 public:
  // `keys` must outlive it.
  explicit Gatekeeper(const DoorKeys& keys);

  // Whether `access` can be had at this door at all.
  bool Serves(Door door, Access access) const;
  // Why not; nullopt: it may. REQUIRES: Serves().
  std::optional<HttpError> Refuses(Access access, Door door, std::span<const HeaderField> fields);
  // The one to ask whether that is right; null: it is.
  KeyJudge* Appeal(Access access, HttpError refusal) const;
  // Whether admin endpoints ask for a key.
  bool takes_admin_keys() const { return admins_.has_value(); }
  // Clients' keys are meant for us, so they stay behind.
  bool takes_client_keys() const { return clients_.has_value() || judge_ != nullptr; }

 private:
  using Cached = Snapshot<KeySet>::Cached;
  std::optional<Cached> clients_;
  std::optional<Cached> admins_;
  KeyJudge* const judge_;
  const bool admin_port_;
};

}  // namespace vllm_router
