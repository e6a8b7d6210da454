// Options of a server that make no sense together. InvalidArgument names both, their values and the remedy.
#pragma once

#include "base/status.h"

namespace vllm_router {

class Router;
struct FixedOptions;
struct Settings;

// Overloaded workers are passed over, and nothing polls their loads.
Status CheckExclusion(const Settings& settings);
// A connector that is unknown, or that cannot do what other options want of it.
Status CheckKvConnector(const FixedOptions& options, const Router& router);
// Where workers register.
Status CheckRegistration(const FixedOptions& options);

}  // namespace vllm_router
