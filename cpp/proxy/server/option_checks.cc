#include "proxy/server/option_checks.h"

#include "base/text.h"
#include "proxy/api/server_options.h"

namespace vllm_router {

Status CheckExclusion(const Settings& settings) {
  if (!settings.excludes_overloaded() || settings.load_poll_interval_ms != 0) return absl::OkStatus();
  return absl::InvalidArgumentError(Concat(
      settings.exclude_waiting_above != 0
          ? Concat("exclude_waiting_above is ", settings.exclude_waiting_above)
          : Concat("exclude_kv_above is ", settings.exclude_kv_above),
      " and load_poll_interval_secs is 0, so that no worker tells its load; set load_poll_interval_secs to "
      "the "
      "seconds between two polls, or leave it out for 1"));
}

}  // namespace vllm_router
