// OwnEndpoints responds to requests for the router's own endpoints (RouteInfo::own). The server passes
// it to the connections, so that the code that relays requests does not depend on the code that
// administers the fleet.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/header_field.h"
#include "net/task.h"
#include "proxy/api/admin_reply.h"
#include "proxy/api/routes.h"
#include "proxy/api/settings.h"

namespace vllm_router {

class CancelScope;
struct IoThread;

struct AdminRequest {
  Route route;
  std::string_view method;
  std::string_view path;
  std::string_view query;
  std::string_view body;
  const Settings& settings;
  CancelScope& scope;          // for work on its behalf; after Cancel() the reply is not read
  bool has_admin_key = false;  // the request had an admin key that was checked
  // Of requests for models: the client's fields for workers that have keys of their own, as they stand in a head;
  // empty: it sent none, or its key was meant for the router.
  std::string credentials = {};
  std::span<const HeaderField> fields = {};  // of its head
};

class OwnEndpoints {
 public:
  // On the thread that received the request. REQUIRES: RouteOf(route).own, and the method is one of its
  // `allow`.
  virtual Task<AdminReply> Respond(IoThread& thread, AdminRequest request) = 0;

  // What `work` returns, which takes too long for a thread that serves requests, and runs on another one. Null: the scope
  // was cancelled, or it took too long.
  virtual Task<std::shared_ptr<const AdminReply>> Elsewhere(
      IoThread& thread, CancelScope& scope, std::function<AdminReply()> work) = 0;

 protected:
  ~OwnEndpoints() = default;
};

}  // namespace vllm_router
