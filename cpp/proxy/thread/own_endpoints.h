// OwnEndpoints: what responds to requests for the router's own endpoints (RouteInfo::own). A connection is given it by the
// server, so that what relays requests does not depend on what administers the fleet.
#pragma once

#include <string_view>

#include "net/task.h"
#include "proxy/api/admin_reply.h"
#include "proxy/api/routes.h"

namespace vllm_router {

class CancelScope;
struct IoThread;

struct AdminRequest {
  Route route;
  std::string_view method;
  std::string_view path;
  std::string_view query;
  std::string_view body;
  CancelScope& scope;          // what to do for it; once that is cancelled, nobody reads the reply
  bool has_admin_key = false;  // and it was checked
};

class OwnEndpoints {
 public:
  // On the thread that received the request. REQUIRES: RouteOf(route).own, and the method is one of its `allow`.
  virtual Task<AdminReply> Respond(IoThread& thread, AdminRequest request) = 0;

 protected:
  ~OwnEndpoints() = default;
};

}  // namespace vllm_router
