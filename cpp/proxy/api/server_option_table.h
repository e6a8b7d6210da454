// The options of the server by the names that the flags have; bindings/server.cc sets them by name. Times
// are in seconds where a name does not say milliseconds. Ranges are checked by RouterArgs alone, whose
// values are the only ones that get here.
//
//   SetOption<Settings>(*FindOption(SettingsTable(), "queue_timeout_secs"), 2.5, &options)
//
// Cost: base/option_spec.h. Thread-safe.
#pragma once

#include "base/option_spec.h"
#include "proxy/api/server_options.h"

namespace vllm_router {

const OptionTable<FixedOptions>& FixedOptionTable();
// Those that may change while the server runs.
const OptionTable<Settings>& SettingsTable();

}  // namespace vllm_router
