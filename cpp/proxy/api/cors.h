// CORS: what a browser is told about pages of other origins that call us.
//
//   --cors-allowed-origins     page of https://ui.example         response
//   none                       any path                           nothing, so the browser does not show it to the page
//   *                          any path but admin endpoints       Access-Control-Allow-Origin: *
//   https://ui.example         any path                           Access-Control-Allow-Origin: https://ui.example
//   https://other.example      any path                           nothing
//
// A preflight (OPTIONS with the method that is meant) gets its response here; it carries no key, so it needs none. A
// request without Origin gets nothing of this but Vary.
//
// CORS only keeps a page from reading a response; what a simple request did is done. Admin endpoints therefore reject
// requests that a browser makes for a page of another site, IsCrossSite(): any page that an operator happens to visit
// could otherwise change the fleet behind the firewall, and with it who gets prompts and keys.
//
//   Origin                        Sec-Fetch-Site              cross-site
//   named                         any                         no
//   anything else, also "null"    any                         yes, even if it equals Host (DNS rebinding)
//   absent                        same-origin, none, absent   no: a program, or the address line of a browser
//   absent                        anything else               yes
//
// Browsers apply none of this to WebSocket: any page may open one anywhere and read from it. So MayOpenWebSocket() compares
// the origin here: it has to be named, or that of the host which the request is for (as gorilla/websocket has it, and the
// library websocket-client sends it; behind DNS rebinding a page may read plain responses as well). Programs without Origin pass.
//
// Immutable; any thread.
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

  static bool IsPreflight(const RequestHead& head);

  // What goes into the answer; the values outlive the request's head as `origin` does.
  std::vector<HeaderField> FieldsFor(std::string_view origin, Access access, bool preflight) const;

  // Whether a browser made the request for a page that is not of a named origin.
  bool IsCrossSite(std::span<const HeaderField> fields) const;

  // Whether the page that opens this WebSocket, if a page does, may read from it.
  bool MayOpenWebSocket(const RequestHead& head) const;

  // Of a request; empty if it has none, or more than one.
  static std::string_view OriginOf(const RequestHead& head);

 private:
  bool IsNamed(std::string_view origin) const;

  std::vector<std::string> named_;
  bool any_ = false;
};

}  // namespace vllm_router
