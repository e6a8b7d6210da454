// What GET /scale says of a model (control/scale_service.h). Any thread.
#pragma once

#include <optional>
#include <string>

#include "proxy/api/admin_reply.h"

namespace vllm_router {

struct ScaleReport;

// `model`: nullopt, if the query names none; that will do while there is one.
AdminReply ScaleReply(const ScaleReport& report, const std::optional<std::string>& model);

}  // namespace vllm_router
