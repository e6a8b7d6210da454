// Authorizer: whether a request is permitted.
//
//   path                         needs                       where
//   /health, /liveness, …        nothing                     every port
//   what goes to workers, models a client's key, if there    the main port
//                                is a key file or an
//                                external validator
//   fleet and /admin             an admin's key, likewise    the main port, or the admin port if there is one
//   a page without data          nothing                     likewise
//
// A key comes as `Authorization: Bearer KEY`; as `x-api-key: KEY`, which clients of Anthropic's API send; as
// `api-key: KEY`, which those of Azure's send; or among the subprotocols of a WebSocket
// (http/websocket_protocols.h). The first of these counts. If clients need keys, admin paths on the main
// port are closed unless admins have keys of their own: a key for the models must not give access to the
// fleet.
//
// One per thread. Cost without keys: a comparison; with keys, that of KeySet.
#pragma once

#include <memory>
#include <optional>
#include <string_view>

#include "base/snapshot.h"
#include "http/head.h"
#include "proxy/api/error_response.h"
#include "proxy/api/routes.h"
#include "proxy/security/key_file.h"
#include "proxy/security/key_validator.h"

namespace vllm_router {

// The purpose of a listener.
enum class ListenerKind : uint8_t { kPublic, kAdmin, kMetrics };

// The key of a request; empty if it has none, nullopt if it is ambiguous.
std::optional<std::string_view> KeyOf(const RequestHead& head);

// Of the server; null: no such keys.
struct KeySets {
  std::unique_ptr<KeyFile> clients;
  std::unique_ptr<KeyFile> admins;
  std::unique_ptr<KeyValidator> validator;  // of clients' keys that are in no file
  bool admin_port = false;                  // admin paths have a port of their own
};

class Authorizer {
 public:
  // `keys` must outlive it.
  explicit Authorizer(const KeySets& keys);

  // Whether `access` is available on this kind of listener at all.
  bool Serves(ListenerKind listener_kind, Access access) const;
  // The reason for a rejection; nullopt: permitted. `match`: a client's key, if clients are told apart and it is in the
  // file. REQUIRES: Serves().
  std::optional<HttpError> Rejects(
      Access access, ListenerKind listener_kind, const RequestHead& head,
      std::optional<KeyMatch>* match = nullptr);
  // External validator that may overrule the rejection; null if the rejection is final.
  KeyValidator* ValidatorFor(Access access, HttpError refusal) const;
  // Whether admin endpoints require a key.
  bool takes_admin_keys() const { return admins_.has_value(); }
  // Clients' keys are meant for us and are not forwarded.
  bool takes_client_keys() const { return clients_.has_value() || validator_ != nullptr; }
  // Matches of keys matter: from now on, or since keys of the file have attributes.
  void TellClientsApart() { tells_apart_ = true; }
  bool tells_clients_apart() {
    return tells_apart_ || (clients_.has_value() && clients_->Get()->has_attributes());
  }

 private:
  using Cached = Snapshot<KeySet>::Cached;
  std::optional<Cached> clients_;
  std::optional<Cached> admins_;
  KeyValidator* const validator_;
  const bool admin_port_;
  bool tells_apart_ = false;
};

}  // namespace vllm_router
