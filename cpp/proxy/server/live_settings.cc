#include "proxy/server/live_settings.h"

#include <utility>

#include "proxy/admin/feature.h"
#include "proxy/server/completed_options.h"
#include "proxy/server/features.h"
#include "proxy/server/option_checks.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {

LiveSettings::LiveSettings(const ServerOptions& options, Router& router, ServerLimits& limits)
    : options_(options),
      router_(router),
      limits_(limits),
      settings_(std::make_shared<const Settings>(options)) {
  ExpectModels(options);
}

void LiveSettings::Publish(Settings settings) {
  CompleteSettings(&settings, settings_.Load().get(), router_);
  settings.pd.kv_connector = options_.kv_connector;
  settings.pd.discovers = options_.pd.discovers;
  limits_.Follow(settings);
  for (const Feature* const feature : Features()) {
    if (feature->follow != nullptr) feature->follow(limits_, settings);
  }
  ExpectModels(settings);
  const auto published = std::make_shared<const Settings>(std::move(settings));
  settings_.Publish(published);
  published_(published);
}

void LiveSettings::ExpectModels(const Settings& settings) {
  router_.pool().registry().ExpectModels(settings.models, settings.model_memory_ns(), settings.lora_spread);
}

StatusOr<Difference> LiveSettings::Apply(Change change, bool dry_run) {
  MutexLock lock(apply_mutex_);
  const bool checks = settings_.Load()->health_check_interval_ms > 0;
  const bool will_check = change.settings.health_check_interval_ms > 0;
  if (checks != will_check) {
    return absl::InvalidArgumentError(
        "health_check_interval_secs cannot become 0, or another value than 0, while the server runs");
  }
  ROUTER_RETURN_IF_ERROR(CheckExclusion(change.settings));
  for (const Feature* const feature : Features()) {
    if (feature->may_follow != nullptr) ROUTER_RETURN_IF_ERROR(feature->may_follow(change.settings));
  }
  Difference difference;
  if (change.workers) {
    StatusOr<Difference> changed = dry_run
                                       ? router_.WouldReconcile(DeclaredFleet::kStatic, *change.workers, true)
                                       : router_.Reconcile(DeclaredFleet::kStatic, *change.workers, true, {});
    if (!changed.ok()) return changed.status();
    difference = *std::move(changed);
  }
  if (dry_run) return difference;
  // From here on nothing fails.
  router_.pool().registry().SetGuard(change.guard);
  Publish(std::move(change.settings));
  return difference;
}

}  // namespace vllm_router
