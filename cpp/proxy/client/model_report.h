// ModelsInReport: the models in a worker's response to GET /v1/models, as the engines write it.
//
//   {"object": "list", "data": [{"id": "m", "root": "/models/m", "parent": null, "max_model_len": 4096, …}]}
//   {"object": "list", "data": [{"id": "m", "meta": {"n_ctx": 4096, …}}]}                          llama.cpp's
//
// Entries without a usable id are left out; other members of the wrong type count as absent. A report is
// kMaxModelReportBytes long at most: a reader of the response stops there. Cost: one parse. Pure; any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/model_catalog.h"

namespace vllm_router {

inline constexpr size_t kMaxModelReportBytes = size_t{1} << 20;

// Nullopt if it is no such report. An empty list is one.
std::optional<std::vector<ModelCard>> ModelsInReport(std::string_view json);

}  // namespace vllm_router
