// What is told of a shared pool (page_layout.h), and what its master tells of keys:
//
//   --shared-cache-layout   {"page_size": 64, "tp_size": 2, "is_mla_model": false, …}      by Dynamo's names
//   GET /server_info        {"hicache_storage_backend": "mooncake", "page_size": 64, …}    SGLang
//   GET /batch_query_keys   {"success": true, "data": {"K1": {"ok": true, "values": […]},
//                                                      "K2": {"ok": false, "error": "OBJECT_NOT_FOUND"}}}
//
// An object is there if it has a complete replica: `ok`, and one of the lists of replicas is not empty. Whatever
// the text is, the result is bounded by the keys queried. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "shared_pool/page_layout.h"

namespace vllm_router {

// InvalidArgument names the member, its value and the limit. Members that are not known are ignored.
StatusOr<PagePool> PoolInLayout(std::string_view json);

// Nullopt if the worker keeps nothing in a Mooncake store; InvalidArgument as above.
StatusOr<std::optional<PagePool>> PoolInServerInfo(std::string_view json);

// One for each of `keys`: it is there. FailedPrecondition for any other response.
StatusOr<std::vector<bool>> KeysInReply(std::string_view json, std::span<const std::string> keys);

}  // namespace vllm_router
