// The options of a router that are not its policy's (policy/policy_options.h has those), by the names that
// flags and Python have.
//
//   CheckRanges(RouterOptionTable(), options)    max_prefix_length is 0; it is the length of a prefix …
//
// Cost: base/option_spec.h. Thread-safe.
#pragma once

#include "base/option_spec.h"
#include "routing/router.h"

namespace vllm_router {

const OptionTable<RouterOptions>& RouterOptionTable();

}  // namespace vllm_router
