// CORS: what a browser is told about pages of other origins that call us.
//
//   --cors-allowed-origins     asked from https://ui.example      told
//   none                       any path but the fleet's           Access-Control-Allow-Origin: *
//   https://ui.example         any path                           Access-Control-Allow-Origin: https://ui.example
//   https://other.example      any path                           nothing, so the browser keeps the answer to itself
//
// A preflight (OPTIONS with the method that is meant) is answered here; it carries no key, so none is asked for.
// Paths of the fleet and /admin are for named origins only: a page that somebody happens to visit must not read them.
// A request without Origin is no browser's, and gets nothing of this but Vary. Immutable; any thread.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "http/head.h"
#include "proxy/routes.h"

namespace vllm_router {

class Cors {
 public:
  explicit Cors(std::vector<std::string> allowed_origins);

  static bool IsPreflight(const RequestHead& head);

  // What goes into the answer; the values outlive the request's head as `origin` does.
  std::vector<HeaderField> FieldsFor(std::string_view origin, Access access, bool preflight) const;

  // Of a request; empty if it has none, or more than one.
  static std::string_view OriginOf(const RequestHead& head);

 private:
  const std::vector<std::string> allowed_;
};

}  // namespace vllm_router
