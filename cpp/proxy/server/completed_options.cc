#include "proxy/server/completed_options.h"

#include <sys/resource.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/log.h"
#include "policy/policy.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr int64_t kEachSecondMs = 1000;

// Raises the limit as far as possible; returns how many files may be open then.
uint64_t RaiseFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return UINT64_MAX;
  if (limit.rlim_cur == limit.rlim_max) return limit.rlim_cur;
  const rlim_t before = std::exchange(limit.rlim_cur, limit.rlim_max);
  if (::setrlimit(RLIMIT_NOFILE, &limit) != 0) return before;
  Log(LogLevel::kDebug, "raised the limit of open files to " + std::to_string(limit.rlim_cur));
  return limit.rlim_cur;
}

// A request in flight needs two files, its client and its worker; without them it would only fail later.
// Clients must leave as many files as workers will need. When files are few, half are for clients and a
// quarter for workers. `former`: settings whose limit was the same are said once.
void LimitToAffordable(Settings* limited, const Settings* former) {
  Settings& options = *limited;
  const uint64_t files = RaiseFileLimit();
  const bool few = files <= 2 * kReservedFiles;
  const uint64_t requests = std::max<uint64_t>(1, few ? files / 4 : (files - kReservedFiles) / 2);
  if (options.max_concurrent_requests > requests) {
    options.max_concurrent_requests = static_cast<uint32_t>(requests);
    const bool is_new = former == nullptr || former->max_concurrent_requests != requests;
    Log(is_new ? LogLevel::kInfo : LogLevel::kDebug,
        "the limit of open files (" + std::to_string(files) + ") allows " + std::to_string(requests) +
            " requests at once, less than --max-concurrent-requests; raise it, for instance by ulimit -n");
  }
  const uint64_t clients = few ? files / 2 : files - kReservedFiles - options.max_concurrent_requests;
  if (options.max_connections == 0) {
    options.max_connections = static_cast<uint32_t>(std::clamp<uint64_t>(clients, 1, UINT32_MAX));
  }
}

}  // namespace

// Workers are polled for their loads, unless the settings say otherwise, where overloaded ones are passed over, where
// priority classes have ceilings, and under power_of_two, as in the reference router.
void CompleteSettings(Settings* settings, const Settings* former, const Router& router) {
  LimitToAffordable(settings, former);
  if (settings->load_poll_interval_ms < 0) {
    const bool polls = router.policy_of(Stage::kPrefill).name() == "power_of_two" ||
                       router.policy_of(Stage::kDecode).name() == "power_of_two";
    const bool each_second = settings->excludes_overloaded() || !settings->admission_classes.empty();
    settings->load_poll_interval_ms = each_second ? kEachSecondMs
                                      : polls     ? settings->worker_startup_check_ms
                                                  : 0;
  }
}

ServerOptions CompletedOptions(ServerOptions options, const Router& router) {
  CompleteSettings(&options, nullptr, router);
  options.pd.kv_connector = options.kv_connector;
  options.pd.discovers = !options.vllm_discovery_address.empty();
  return options;
}

}  // namespace vllm_router
