// The request ID: the client's if it sent one, otherwise generated here. One string then finds a request
// in the client's log, in ours and in the worker's.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "base/random.h"

namespace vllm_router {

struct RequestId {
  std::string id;                // for the client: "chatcmpl-" and 24 letters and digits, or its own
  std::string_view header_name;  // the field that carried it; empty if generated here
  size_t own_prefix = 0;         // length of the prefix that we added
  std::string for_workers;       // instead of the client's; usually empty

  // Without our prefix, since vLLM adds its own.
  std::string_view to_worker() const {
    return for_workers.empty() ? std::string_view(id).substr(own_prefix) : for_workers;
  }
};

// `ranked_names`: the first one that is present and not empty wins. `prefix`: by route, see RouteInfo.
RequestId ChooseRequestId(
    std::span<const HeaderField> fields, const std::vector<std::string>& ranked_names,
    std::string_view prefix, Random& random);

// No worker sees the client's id, if there is one: engines may read the addresses of their peers in an id.
void HideFromWorkers(RequestId* request_id, Random& random);

}  // namespace vllm_router
