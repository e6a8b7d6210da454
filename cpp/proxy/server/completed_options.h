// CompletedOptions: what the settings of a server leave to the machine and to the policy.
//
//   max_concurrent_requests, max_connections   no more than the limit of open files allows, which is raised first
//   load_poll_interval_ms                      workers are polled for their loads where something goes by these
#pragma once

#include "proxy/api/server_options.h"

namespace vllm_router {

class Router;

// `former`: settings that were in force; a limit that was the same is logged once. Null: none.
void CompleteSettings(Settings* settings, const Settings* former, const Router& router);
ServerOptions CompletedOptions(ServerOptions options, const Router& router);

}  // namespace vllm_router
