#include "proxy/holdout/holdout_feature.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/log.h"
#include "base/option_spec.h"
#include "base/text.h"
#include "base/whole_file.h"
#include "policy/policy_registry.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/feature.h"
#include "proxy/admin/replies.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/holdout/holdout_service.h"
#include "proxy/holdout/thread_holdout.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr double kLeastPercent = 0.01;
constexpr size_t kMinSecretBytes = 16;

Status Check(const ServerOptions& options, const Router& router) {
  const StatusOr<std::string_view> name = CanonicalPolicyName(options.holdout_policy);
  if (!name.ok() || std::ranges::find(kHoldoutBaselines, *name) == kHoldoutBaselines.end()) {
    return absl::InvalidArgumentError(Concat(
        "holdout_policy is ", Quoted(options.holdout_policy), "; it must be one of ",
        Listed(kHoldoutBaselines)));
  }
  const double percent = options.holdout_percent;
  if (percent == 0) return absl::OkStatus();
  if (percent < kLeastPercent) {
    return absl::InvalidArgumentError(Concat(
        "holdout_percent is ", percent,
        "; it is the share of conversations that the baseline routes and must be 0 or "
        "between 0.01 and 20 (default 0)"));
  }
  if (router.is_staged()) {
    return absl::InvalidArgumentError(Concat(
        "holdout_percent is ", percent,
        " and the fleet has prefill and decode workers, which no baseline chooses; set holdout_percent to "
        "0"));
  }
  return absl::OkStatus();
}

StatusOr<KeyedHash::Key> MakeKey(const ServerOptions& options) {
  if (!options.holdout_secret_file.empty()) {
    const StatusOr<std::string> secret =
        ReadSecretFile("holdout_secret_file", options.holdout_secret_file, kMinSecretBytes);
    if (!secret.ok()) return secret.status();
    return HoldoutKey(*secret);
  }
  if (!options.peer_sync.empty()) {
    Log(LogLevel::kWarning,
        "holdout_percent is set without holdout_secret_file, so each router holds out other conversations, "
        "and one that "
        "moves between routers may change its arm; give all routers the same secret");
  }
  const std::optional<KeyedHash::Key> key = DrawKey();
  if (!key) return absl::UnavailableError("the system has no random numbers for the hold-out's secret");
  return *key;
}

// The control thread serves no requests of clients.
Status Add(const ServerParts& server) {
  const ServerOptions& options = server.options;
  const uint32_t parts = HoldoutParts(options.holdout_percent);
  if (parts == 0) return absl::OkStatus();
  const StatusOr<KeyedHash::Key> key = MakeKey(options);
  ROUTER_RETURN_IF_ERROR(key.status());
  PolicyOptions baseline = server.router.options().policy;
  baseline.policy = *CanonicalPolicyName(options.holdout_policy);
  StatusOr<PolicyParts> made = MakePolicy(baseline);
  ROUTER_RETURN_IF_ERROR(made.status());
  auto shared = std::make_unique<SharedHoldout>();
  shared->baseline = std::move(made->policy);
  SharedHoldout* const kept = server.limits.features.Own(std::move(shared));
  std::vector<ThreadHoldout*> threads;
  for (const std::unique_ptr<IoThread>& thread : server.threads.first(server.threads.size() - 1))
    threads.push_back(thread->features.Own(std::make_unique<ThreadHoldout>(kept, *key, parts)));
  server.services.Add<HoldoutService>(
      HoldoutService::Options{
          .percent = static_cast<double>(parts) / 100, .baseline = kept->baseline->name()},
      kept, std::move(threads));
  DelegatedRequests::Of(server.limits.features).Add(kDelegatedTurns);
  return absl::OkStatus();
}

// Four significant digits.
json::value Rounded(double value) {
  if (!std::isfinite(value)) return nullptr;
  if (value == 0) return 0.0;
  const double unit = std::pow(10, 3 - std::floor(std::log10(std::abs(value))));
  return std::round(value * unit) / unit;
}

json::array Describe(const Interval& interval) { return {Rounded(interval.low), Rounded(interval.high)}; }

bool Excludes(const Interval& interval, double nothing) {
  return interval.low > nothing || interval.high < nothing;
}

void AddInterval(
    const EffectEstimate& estimate, const std::optional<Interval>& interval, double nothing,
    json::object* to) {
  const bool is_conclusive = interval && Excludes(*interval, nothing);
  (*to)["interval"] = interval ? json::value(Describe(*interval)) : json::value(nullptr);
  (*to)["conclusive"] = is_conclusive;
  if (is_conclusive) return;
  const std::optional<uint64_t> needed = estimate.HeldOutNeeded();
  (*to)["holdout_needed"] = needed ? json::value(*needed) : json::value(nullptr);
}

json::value DescribeShare(const EffectEstimate& estimate) {
  const std::optional<Interval> interval = estimate.At(HoldoutResults::kAlpha);
  if (!interval) return nullptr;
  json::object made = {
      {"policy", Rounded(estimate.policy_mean())},
      {"holdout", Rounded(estimate.held_out_mean())},
      {"difference", Rounded(estimate.effect())}};
  AddInterval(estimate, interval, 0, &made);
  return made;
}

// Of means of logarithms, as ratios: policy by held out.
json::value DescribeRatio(const EffectEstimate& estimate) {
  const std::optional<Interval> logs = estimate.At(HoldoutResults::kAlpha);
  if (!logs) return nullptr;
  json::object made = {{"estimate", Rounded(std::exp(estimate.effect()))}};
  AddInterval(estimate, Interval{std::exp(logs->low), std::exp(logs->high)}, 1, &made);
  return made;
}

// Held out by policy.
json::value DescribeFailures(const HoldoutResults& results) {
  if (results.held_out() < EffectEstimate::kFirstLook) return nullptr;
  const FailureRatio& failures = results.failures();
  const Interval interval = failures.At(HoldoutResults::kAlpha);
  return json::object{
      {"failed", {{"policy", failures.policy()}, {"holdout", failures.held_out()}}},
      {"estimate", failures.ratio() ? Rounded(*failures.ratio()) : json::value(nullptr)},
      {"interval", Describe(interval)},
      {"conclusive", Excludes(interval, 1)}};
}

json::value DescribeSaved(const HoldoutService::View& view) {
  const std::optional<Interval> interval = view.results.saved_tokens().At(HoldoutResults::kAlpha);
  if (!interval || view.seconds <= 0) return nullptr;
  constexpr double kDay = 86'400;
  const double a_day =
      static_cast<double>(view.results.policy() + view.results.held_out()) / view.seconds * kDay;
  return Describe({interval->low * a_day, interval->high * a_day});
}

AdminReply Show(AdminContext& admin, const PageCall& /*call*/) {
  const auto* const service = admin.services->Find<HoldoutService>();
  if (service == nullptr) {
    return ErrorReply(
        HttpError::kInvalidArgument,
        "holdout_percent is 0, so no conversations are held out; start the router with --holdout-percent 1",
        404);
  }
  const HoldoutService::View view = service->Look();
  const HoldoutResults& results = view.results;
  const uint64_t all = results.policy() + results.held_out();
  json::object page = {
      {"percent", view.options.percent},
      {"policy", admin.router->policy().name()},
      {"baseline", view.options.baseline},
      {"since", view.since},
      {"stopped", view.stopped.empty() ? json::value(nullptr) : json::value(view.stopped)},
      {"conversations", {{"policy", results.policy()}, {"holdout", results.held_out()}, {"open", view.open}}},
      {"reported_share", all == 0
                             ? json::value(nullptr)
                             : Rounded(static_cast<double>(results.reporting()) / static_cast<double>(all))},
      {"cached_share", DescribeShare(results.cached_share())},
      {"ttft_ratio", DescribeRatio(results.later_turns())},
      {"first_turn_ttft_ratio", DescribeRatio(results.first_turn())},
      {"failure_ratio", DescribeFailures(results)},
      {"saved_prompt_tokens_per_day", DescribeSaved(view)}};
  return JsonReply(200, page);
}

constexpr OwnEndpoint kOwnEndpoints[] = {{.path = "/admin/holdout", .methods = "GET, HEAD", .render = &Show}};

std::span<const OwnEndpoint> HoldoutEndpoints() { return kOwnEndpoints; }

constexpr EndpointTable kTables[] = {&HoldoutEndpoints};

// Whether there is a page for the dashboard to show.
void AddToDashboard(AdminContext& admin, const PageCall& /*call*/, json::object* page) {
  (*page)["holdout"] = admin.services->Find<HoldoutService>() != nullptr;
}

constexpr PageSection kSections[] = {{.path = "/dashboard/events", .add = &AddToDashboard}};

}  // namespace

extern constexpr Feature kHoldoutFeature = {
    .name = "holdout", .check = &Check, .add = &Add, .endpoints = kTables, .sections = kSections};

}  // namespace vllm_router
