// FleetCall: the arguments of a call that changes the fleet, in the query (`?url=…&weight=2`) or as a JSON object in the
// body. Errors say what is wrong, in a sentence for the client. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "proxy/thread/own_endpoints.h"
#include "worker/stage.h"

namespace vllm_router {

struct FleetCall {
  std::string url;
  double weight = 1.0;
  std::optional<double> timeout_secs;
  std::optional<double> wait;
  WorkerRole role = {};  // in a body only
};

StatusOr<FleetCall> CallInBody(std::string_view body);
// The body counts only without a query.
StatusOr<FleetCall> QueryElseBody(const AdminRequest& request);
// Likewise, but a call with neither lacks its query.
StatusOr<FleetCall> ReadCall(const AdminRequest& request);

}  // namespace vllm_router
