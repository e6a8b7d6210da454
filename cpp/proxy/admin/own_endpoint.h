// OwnEndpoint: one path that the router serves itself. Each subject has a table of its own (drain_endpoints.cc, …):
//
//   constexpr OwnEndpoint kOwnEndpoints[] = {
//       {.path = "/admin/drain", .methods = "POST, DELETE", .serve = &Drain},
//       {.path = "/admin/drain/status", .methods = "GET, HEAD", .render = &DrainStatus, .detail = &UrlDetail},
//   };
//
//   render    GET and HEAD: a page, made on the renderer's thread once for all that wait for it (page_renderer.h)
//   respond   what `render` does not: at once, on the request's thread
//   serve     likewise, where the response waits for something
//
// A row is all that a new endpoint needs: authorization, methods, metrics labels and the access log follow from it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/limits.h"
#include "base/status.h"
#include "net/task.h"
#include "proxy/api/admin_reply.h"
#include "proxy/api/routes.h"
#include "proxy/thread/own_endpoints.h"

namespace boost::json {
class object;
}

namespace vllm_router {

struct AdminContext;

inline constexpr std::string_view kReadMethods = "GET, HEAD";

// What a page is made of, besides the context.
struct PageCall {
  const IoThread& thread;    // of a request that waits for it
  const Settings& settings;  // of that request
  std::string_view detail;   // by OwnEndpoint::detail
};

struct OwnEndpoint {
  std::string_view path;          // or "/workers/{url}", for all that begin so
  std::string_view methods = {};  // "GET, HEAD"; empty: the route is in the table of proxy/api/routes.cc
  Access access = Access::kAdmin;
  uint64_t max_body = kSmallBodyBytes;

  AdminReply (*render)(AdminContext& admin, const PageCall& call) = nullptr;
  // What the page depends on besides the route; null: nothing.
  StatusOr<std::string> (*detail)(const AdminRequest& request) = nullptr;
  AdminReply (*respond)(AdminContext& admin, IoThread& thread, const AdminRequest& request) = nullptr;
  Task<AdminReply> (*serve)(AdminContext& admin, IoThread& thread, const AdminRequest& request) = nullptr;
};

// Members that a feature adds to a page of JSON that another subject renders (AdminContext::AddSections).
struct PageSection {
  std::string_view path;  // of the page
  void (*add)(AdminContext& admin, const PageCall& call, boost::json::object* page) = nullptr;
};

}  // namespace vllm_router
