// Options of a server that make no sense together. InvalidArgument names both, their values and the remedy.
#pragma once

#include "base/status.h"

namespace vllm_router {

struct Settings;

// Overloaded workers are passed over, and nothing polls their loads.
Status CheckExclusion(const Settings& settings);

}  // namespace vllm_router
