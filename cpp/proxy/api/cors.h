// CORS: tells browsers which pages of other origins may read our responses.
//
//   --cors-allowed-origins   page of https://ui.example     response
//   none                     any path                       nothing: the browser hides it from the page
//   *                        any path but admin endpoints   Access-Control-Allow-Origin: *
//   https://ui.example       any path                       Access-Control-Allow-Origin: https://ui.example
//   https://other.example    any path                       nothing
//
// A preflight (OPTIONS with the intended method) gets its response here. It carries no key, so it needs
// none. It grants a named origin the headers that it asks for, since each SDK has some of its own, and the
// methods that the path takes. A request without Origin gets no CORS header but Vary.
//
// CORS only keeps a page from reading a response; it does not undo what a simple request did. Admin
// endpoints therefore reject requests that a browser makes for a page of another site, IsCrossSite().
// Otherwise any page that an operator visits could change the fleet behind the firewall, and so where
// prompts and keys go.
//
//   Origin                        Sec-Fetch-Site              cross-site
//   named                         any                         no
//   anything else, also "null"    any                         yes, even if it equals Host (DNS rebinding)
//   absent                        same-origin, none, absent   no: a program, or a browser's address bar
//   absent                        anything else               yes
//
// Browsers apply none of this to WebSocket: any page may open one anywhere and read from it. So
// MayOpenWebSocket() compares the origin here. The origin must be named, or be the host that the request
// is for. gorilla/websocket has the same rule, and the library websocket-client sends such an origin.
// After DNS rebinding a page can read plain responses as well. Programs without Origin pass.
//
// Immutable but for assignment; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "http/head.h"
#include "proxy/api/routes.h"

namespace vllm_router {

class Cors {
 public:
  explicit Cors(std::vector<std::string> allowed_origins);

  const std::vector<std::string>& allowed_origins() const { return allowed_; }

  static bool IsPreflight(const RequestHead& head);

  // Fields to add to the response. The values live as long as `origin`.
  std::vector<HeaderField> FieldsFor(std::string_view origin, Access access) const;
  // To a preflight for a path with these methods. The values live as long as its head and `methods`.
  std::vector<HeaderField> PreflightFieldsFor(
      const RequestHead& head, Access access, std::string_view methods) const;

  // Whether a browser made the request for a page whose origin is not named.
  bool IsCrossSite(std::span<const HeaderField> fields) const;

  // Whether the page that opens this WebSocket, if a page does, may read from it.
  bool MayOpenWebSocket(const RequestHead& head) const;

  // The Origin of a request; empty if it has none, or more than one.
  static std::string_view OriginOf(const RequestHead& head);

 private:
  bool IsNamed(std::string_view origin) const;
  // The origin that a response names; empty: none.
  std::string_view AllowedFor(std::string_view origin, Access access) const;

  std::vector<std::string> allowed_;
  std::vector<std::string> named_;
  bool any_ = false;
};

}  // namespace vllm_router
