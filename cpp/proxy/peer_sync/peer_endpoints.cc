#include "proxy/peer_sync/peer_endpoints.h"

#include <string_view>
#include <utility>

#include <boost/json.hpp>

#include "base/text.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/api/json_text.h"
#include "proxy/control/services.h"
#include "proxy/peer_sync/peer_sync_service.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

namespace json = boost::json;

std::string_view StateName(PeerTable::State state) {
  switch (state) {
    case PeerTable::State::kLive:
      return "live";
    case PeerTable::State::kLate:
      return "late";
    case PeerTable::State::kGone:
      return "gone";
  }
  return "gone";
}

json::object Loads(const LoadCounts& counts) {
  return {
      {"requests", counts.requests},
      {"waiting", counts.waiting},
      {"queued_prefill", counts.queued_prefill},
      {"expected_output", counts.expected_output},
      {"context", counts.context}};
}

// 503 while other routers cannot be heard: for dashboards, not to take a router out of service.
AdminReply HealthReply(const PeerSyncReport& report) {
  const std::string_view state = report.up ? "up" : report.alone ? "alone" : "down";
  return {
      .status = report.up ? 200 : 503,
      .body = JsonText(
          json::object{{"peer_sync", state}, {"trouble", report.up ? std::string() : report.trouble}}),
      .error_code = report.up ? std::string_view() : "peer_sync_down"};
}

// What this router has open at each worker, what its peers have there, and what the worker reported beyond both.
AdminReply WorkersReply(const FleetView& fleet) {
  json::array workers;
  for (const FleetView::Member& member : fleet.members()) {
    const WorkerLoad& load = member.worker->load;
    const LoadCounts own = load.own();
    const LoadCounts peers = {
        .requests = load.peer_requests(),
        .waiting = load.peer_waiting(),
        .queued_prefill = load.queued_prefill() - own.queued_prefill,
        .expected_output = load.expected_output() - own.expected_output,
        .context = load.context() - own.context};
    workers.push_back(json::object{
        {"url", member.worker->url.url},
        {"own", Loads(own)},
        {"peers", Loads(peers)},
        {"polled", json::object{{"requests", load.polled_requests()}, {"waiting", load.polled_waiting()}}}});
  }
  return {.body = JsonText(json::object{{"workers", std::move(workers)}})};
}

AdminReply NoPeers() {
  return ErrorReply(
      HttpError::kNotFound,
      "This router shares nothing with others; --peer-sync redis://… connects it with those of its fleet.");
}

AdminReply PeersStatus(AdminContext& admin, const PageCall& /*call*/) {
  const auto* const peers = admin.services->Find<PeerSyncService>();
  return peers != nullptr ? AdminReply{.body = PeerStatusText(peers->Report())} : NoPeers();
}

AdminReply PeersHealth(AdminContext& admin, const PageCall& /*call*/) {
  const auto* const peers = admin.services->Find<PeerSyncService>();
  return peers != nullptr ? HealthReply(peers->Report()) : NoPeers();
}

AdminReply PeersWorkers(AdminContext& admin, const PageCall& /*call*/) {
  const auto* const peers = admin.services->Find<PeerSyncService>();
  return peers != nullptr ? WorkersReply(*admin.router->fleet()) : NoPeers();
}

constexpr OwnEndpoint kPeerEndpoints[] = {
    {.path = "/ha/status", .methods = kReadMethods, .render = &PeersStatus},
    {.path = "/ha/health", .methods = kReadMethods, .access = Access::kAnybody, .render = &PeersHealth},
    {.path = "/ha/workers", .methods = kReadMethods, .render = &PeersWorkers},
};

}  // namespace

std::string PeerStatusText(const PeerSyncReport& report) {
  json::array members;
  for (const PeerSyncReport::Member& member : report.members) {
    members.push_back(json::object{
        {"router", Hex16(member.router)},
        {"name", member.name},
        {"version", member.version},
        {"state", StateName(member.state)},
        {"heard_ms", member.heard_ms},
        {"sequence", member.sequence},
        {"gaps", member.gaps},
        {"heard_of_this_router", member.seen},
        {"requests", member.requests},
        {"decisions_understood", member.same_kind}});
  }
  const PeerSyncCounts& counts = report.counts;
  const json::object self = {
      {"router", Hex16(report.router)},
      {"name", report.name},
      {"started_ms", PeerStreams::StartedMs(report.router)},
      {"sequence", report.sequence}};
  const json::object redis = {
      {"url", report.redis_url},
      {"up", report.up},
      {"alone", report.alone},
      {"outage_seconds", static_cast<double>(report.outage_ms) / 1000},
      {"trouble", report.trouble}};
  const json::object decisions = {
      {"sent", counts.decisions_sent},
      {"applied", counts.decisions_applied},
      {"dropped", report.decisions_dropped + counts.decisions_over_budget},
      {"not_understood", counts.decisions_foreign},
      {"of_unknown_workers", counts.decisions_unknown_worker}};
  return JsonText(json::object{
      {"fleet", report.fleet},
      {"self", self},
      {"redis", redis},
      {"members", std::move(members)},
      {"decisions", decisions}});
}

std::span<const OwnEndpoint> PeerEndpoints() { return kPeerEndpoints; }

}  // namespace vllm_router
