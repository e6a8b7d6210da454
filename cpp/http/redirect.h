// The URL in a worker's Location, as the client has to call it. Engines make it from the Host that they were sent, which
// is the worker's own address: FastAPI does for a slash too many at the end of a path. A client that followed it would
// pass the router by.
//
//   worker http://gpu-0:8000/a, router https://llm.example
//
//   http://gpu-0:8000/a/v1/models    https://llm.example/v1/models    also with https, which X-Forwarded-Proto may cause
//   /a/v1/models                     /v1/models
//   http://gpu-0:8000/b, /b, b       as it is: below no path that the router serves, or not the worker's
//
// The same holds where the worker is sent the client's Host; a scheme that is not the worker's is then meant. Pure; any
// thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "http/head.h"

namespace vllm_router {

struct RedirectEnds {
  std::string_view worker_authority;  // without the scheme's port
  std::string_view worker_prefix;     // path; usually empty
  bool worker_tls = false;
  std::string_view client_host;  // that the worker was sent as its own; empty: it was not
  // The router's, as the client calls it.
  std::string_view scheme;
  std::string_view authority;  // empty: not known
};

// nullopt: the value stays as it is.
std::optional<std::string> RouterLocation(std::string_view location, const RedirectEnds& ends);

// The scheme and authority by which the client called, as a proxy in front of the router says or the connection does.
struct CalledAs {
  std::string_view scheme;
  std::string_view authority;
};
CalledAs ReadCalledAs(const RequestHead& head, bool tls, bool trust_forwarded);

}  // namespace vllm_router
