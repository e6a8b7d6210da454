// Steps: the way of a request through the router (proxy/exchange/step.h), as a table. A new step is a row here, beside
// a file of its own and a section of docs/explanation/life_of_a_request.md.
#pragma once

#include <span>

#include "proxy/exchange/step.h"

namespace vllm_router {

std::span<const Step* const> Steps();

}  // namespace vllm_router
