#include "proxy/admin/drain_endpoints.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/text.h"
#include "base/time_units.h"
#include "net/task.h"
#include "peer_sync/admin_facts.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/fleet_call.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/api/json_text.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/control/drainer.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

constexpr int64_t kMaxDrainSeconds = 31'536'000;  // a year
constexpr int64_t kMaxWaitSeconds = 3'600;
constexpr int64_t kDrainLookNanos = 50 * kNanosPerMs;

// Rows of one worker, or of the ranks of a host: `ended` once none of them drains any more.
json::object Describe(const std::vector<Drainer::Row>& rows, int64_t now) {
  json::array workers;
  bool ended = true;
  for (const Drainer::Row& row : rows) {
    const bool drains = row.state == Drainer::State::kDraining;
    ended = ended && !drains;
    workers.push_back(json::object{
        {"url", row.url},
        {"state", Drainer::StateName(row.state)},
        {"open_requests", row.open_requests},
        {"seconds", static_cast<double>(((drains ? now : row.ended_ns) - row.begun_ns) / kNanosPerMs) / 1000},
        {"timeout_secs", static_cast<double>(row.timeout_ms) / 1000}});
  }
  return {{"ended", ended}, {"workers", std::move(workers)}};
}

StatusOr<int64_t> WaitOf(const FleetCall& call) {
  const double seconds = call.wait.value_or(0);
  if (seconds >= 0 && seconds <= kMaxWaitSeconds) return static_cast<int64_t>(seconds * kNanosPerSecond);
  return absl::InvalidArgumentError(Concat(
      "'wait' is ", JsonText(seconds), "; it must be a number of seconds between 0 and ", kMaxWaitSeconds,
      ", for which the response waits for the end of the drain"));
}

// Until the drain has ended, the time is over or the request is cancelled.
Task<void> WaitForDrain(
    AdminContext& admin, IoThread& thread, CancelScope& scope, std::string_view url, int64_t wait_ns) {
  const int64_t until_ns = thread.clock.NowNanos() + wait_ns;
  scope.set_long();
  if (thread.draining) scope.Cancel();
  for (;;) {
    const int64_t left_ns = until_ns - thread.clock.NowNanos();
    const std::vector<Drainer::Row> rows = admin.drainer->Rows(url);
    const bool drains = std::ranges::any_of(
        rows, [](const Drainer::Row& row) { return row.state == Drainer::State::kDraining; });
    if (!drains || left_ns <= 0) co_return;
    const bool go_on = co_await scope.Pause(thread.loop, std::min(left_ns, kDrainLookNanos));
    if (!go_on) co_return;
  }
}

Task<AdminReply> Drain(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  const StatusOr<FleetCall> call = QueryElseBody(request);
  if (!call.ok()) co_return RejectedReply(call.status());
  const StatusOr<int64_t> wait_ns = WaitOf(*call);
  if (!wait_ns.ok()) co_return RejectedReply(wait_ns.status());
  const bool back = request.method == "DELETE";
  int64_t timeout_ms = request.settings.drain_timeout_ms;
  if (call->timeout_secs.has_value() && !back) {
    const double seconds = *call->timeout_secs;
    if (!(seconds >= 0 && seconds <= kMaxDrainSeconds)) {
      co_return ErrorReply(
          HttpError::kInvalidArgument,
          Concat(
              "'timeout_secs' is ", JsonText(seconds), "; it must be a number of seconds between 0 and ",
              kMaxDrainSeconds, " (--drain-timeout-secs when it is missing)"));
    }
    timeout_ms = static_cast<int64_t>(seconds * 1000);
  }
  const Status done = back ? admin.drainer->Cancel(call->url) : admin.drainer->Begin(call->url, timeout_ms);
  if (!done.ok()) co_return ErrorReply(HttpError::kNotFound, std::string(done.message()));
  json::object reply = {{"url", call->url}, {"draining", !back}};
  if (!back) reply["timeout_secs"] = static_cast<double>(timeout_ms) / 1000;
  admin.TellPeers(
      {.kind = AdminFact::Kind::kDrain,
       .url = call->url,
       .holds = !back,
       .timeout_ms = static_cast<uint32_t>(timeout_ms)},
      &reply);
  if (back || *wait_ns == 0) co_return JsonReply(back ? 200 : 202, std::move(reply));
  co_await WaitForDrain(admin, thread, request.scope, call->url, *wait_ns);
  const std::vector<Drainer::Row> rows = admin.drainer->Rows(call->url);
  const bool has_left = !admin.router->pool().registry().Named(call->url).ok();
  if (rows.empty() && has_left) {  // so many ended with it that its row is gone
    reply["draining"] = false;
    reply["ended"] = true;
    co_return JsonReply(200, std::move(reply));
  }
  if (rows.empty()) {
    co_return ErrorReply(
        HttpError::kInvalidArgument,
        Concat(
            "worker ", Quoted(call->url),
            " serves again: its drain was ended by DELETE /admin/drain, or it was added ",
            "again; do not stop it"),
        409);
  }
  json::object state = Describe(rows, admin.drainer->Now());
  const bool ended = state["ended"].as_bool();
  reply["draining"] = !ended;
  for (auto& [name, value] : state) reply[name] = std::move(value);
  co_return JsonReply(ended ? 200 : 202, std::move(reply));
}

AdminReply DrainStatus(AdminContext& admin, const PageCall& call) {
  const std::string url = ValueOf(call.detail).value_or("");
  const std::vector<Drainer::Row> rows = admin.drainer->Rows(url);
  json::object state = Describe(rows, admin.drainer->Now());
  if (url.empty()) return JsonReply(200, {{"workers", std::move(state["workers"])}});
  if (!rows.empty()) return JsonReply(200, std::move(state));
  return ErrorReply(
      HttpError::kNotFound,
      Concat(
          "worker ", Quoted(url),
          " does not drain, and none of that URL has been drained since it joined; POST ",
          "/admin/drain begins it, GET /admin/drain/status without a URL lists all"));
}

StatusOr<std::string> UrlDetail(const AdminRequest& request) { return DetailOf(request.query, "url"); }

constexpr OwnEndpoint kDrainEndpoints[] = {
    {.path = "/admin/drain", .methods = "POST, DELETE", .serve = &Drain},
    {.path = "/admin/drain/status", .methods = "GET, HEAD", .render = &DrainStatus, .detail = &UrlDetail},
};

}  // namespace

std::span<const OwnEndpoint> DrainEndpoints() { return kDrainEndpoints; }

}  // namespace vllm_router
