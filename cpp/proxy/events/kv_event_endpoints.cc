#include "proxy/events/kv_event_endpoints.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>

#include "base/text.h"
#include "events/kv_push.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/fleet_call.h"
#include "proxy/admin/own_endpoint.h"
#include "proxy/admin/replies.h"
#include "proxy/api/server_options.h"
#include "proxy/control/services.h"
#include "proxy/events/kv_event_service.h"
#include "proxy/events/kv_push_call.h"
#include "proxy/events/zmq_feed.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace json = boost::json;
namespace {

json::array PushedSources(const KvPushReceiver& pushes, const Router& router) {
  json::array sources;
  const std::shared_ptr<const FleetView> fleet = router.fleet();
  for (const KvPushReceiver::Status& status : pushes.Report()) {
    const auto member = std::ranges::find(
        fleet->members(), status.worker, [](const FleetView::Member& one) { return one.worker->id; });
    if (member == fleet->members().end()) continue;
    const KvTrust trust = router.pool().index()->reported().TrustOf(status.worker);
    sources.push_back(json::object{
        {"worker", member->worker->url.url},
        {"rank", status.rank},
        {"trust", KvTrustName(trust)},
        {"complete", status.complete},
        {"next_number", status.next},
        {"block_size", status.block_size},
        {"gpu_blocks", status.blocks[0]},
        {"host_blocks", status.blocks[1]},
        {"external_blocks", status.blocks[2]},
        {"events", status.events},
        {"unusable_events", status.unusable}});
  }
  return sources;
}

std::vector<DialInStatus> DialInReport(const AdminContext& admin) {
  const auto* const feed = admin.services->Find<ZmqFeed>();
  return feed != nullptr ? feed->DialInReport() : std::vector<DialInStatus>();
}

AdminReply KvEvents(AdminContext& admin, const PageCall& call) {
  const KvIndex* const index = admin.router->pool().index();
  json::array sources;
  const auto& service = *admin.services->Find<KvEventService>();
  const auto* const pushes = admin.services->Find<KvPushReceiver>();
  const std::vector<KvSourceStatus> statuses = service.Report();
  const auto counts = [](const KvSourceStatus::Counts& by_label) {
    json::object object;
    for (const auto& [label, count] : by_label) object[label] = count;
    return object;
  };
  for (const KvSourceStatus& status : statuses) {
    sources.push_back(json::object{
        {"worker", status.source.url},
        {"rank", status.source.rank},
        {"kind", KvSourceKindName(status.source.kind)},
        {"endpoint", status.source.endpoint},
        {"replay_endpoint", status.source.replay_endpoint},
        {"model", status.source.model},
        {"trust", KvTrustName(status.trust)},
        {"trust_seconds", status.trust_seconds},
        {"connected", status.connected},
        {"reconnects", status.reconnects},
        {"incarnation", status.incarnation},
        {"next_number", status.next_number},
        {"lag_seconds", status.lag_seconds},
        {"block_size", status.block_size},
        {"coverage", status.coverage},
        {"gpu_blocks", status.blocks[0]},
        {"host_blocks", status.blocks[1]},
        {"external_blocks", status.blocks[2]},
        {"orphan_blocks", status.orphan_blocks},
        {"stored_blocks", status.stored_blocks},
        {"removed_blocks", status.removed_blocks},
        {"received_batches", status.received_batches},
        {"applied_batches", status.applied_batches},
        {"lost_batches", status.lost_batches},
        {"held_bytes", status.held_bytes},
        {"replays", counts(status.replays)},
        {"incarnations", counts(status.incarnations)},
        {"dropped", counts(status.dropped)}});
  }
  json::object response{
      {"enabled", index != nullptr && index->reported().active()},
      {"block_size", admin.router->options().policy.block_size},
      {"sources", std::move(sources)},
      {"pushed", pushes != nullptr ? PushedSources(*pushes, *admin.router) : json::array()}};
  if (!call.thread.options.kv_events_bind.empty()) {
    json::array listeners;
    for (const DialInStatus& status : DialInReport(admin)) {
      listeners.push_back(json::object{
          {"endpoint", status.endpoint},
          {"bound", status.bound},
          {"unknown_worker", status.unknown_worker},
          {"malformed", status.malformed}});
    }
    response["listeners"] = std::move(listeners);
  }
  admin.AddSections("/admin/kv-events", call, &response);
  return JsonReply(200, response);
}

AdminReply ResyncKvEvents(AdminContext& admin, IoThread& /*thread*/, const AdminRequest& request) {
  const StatusOr<FleetCall> call = QueryElseBody(request);
  if (!call.ok()) return RejectedReply(call.status());
  if (!admin.services->Find<KvEventService>()->Resync(call->url)) {
    return ErrorReply(
        HttpError::kNotFound,
        Concat(
            "worker ", Quoted(call->url),
            " has no source of KV events; GET /admin/kv-events lists those that have one"));
  }
  return JsonReply(202, {{"url", call->url}, {"resync", true}});
}

AdminReply PushKvEvents(AdminContext& admin, IoThread& thread, const AdminRequest& request) {
  auto* const pushes = admin.services->Find<KvPushReceiver>();
  if (pushes == nullptr) {
    return ErrorReply(
        HttpError::kNotFound, "This router takes no KV events by request; start it with --kv-events-push.");
  }
  const StatusOr<KvPushCall> call = ReadKvPushCall(request.body);
  if (!call.ok()) return RejectedReply(call.status());
  const std::string& model = call->model.empty() ? thread.options.kv_event_model : call->model;
  if (model.empty()) {
    return ErrorReply(
        HttpError::kInvalidArgument,
        "'model' is missing: the base model's name as requests have it, for all pushes --kv-event-model");
  }
  const std::shared_ptr<const FleetView> fleet = admin.router->fleet();
  const std::optional<uint32_t> position = fleet->Find(call->worker);
  const auto unknown = [&call] {
    return ErrorReply(HttpError::kNotFound, Concat("worker ", Quoted(call->worker), " is not in the fleet"));
  };
  if (!position) return unknown();
  const WorkerId worker = fleet->worker(*position).id;
  KvIndex& index = *admin.router->pool().index();
  const KvPushReceiver::Result result = pushes->Push(
      {.worker = worker,
       .rank = call->rank,
       .number = call->number,
       .reset = call->reset,
       .model = model,
       .payload = std::span(reinterpret_cast<const uint8_t*>(call->payload.data()), call->payload.size())},
      thread.clock.NowNanos());
  switch (result.verdict) {
    case KvPushReceiver::Verdict::kGap:
      return JsonReply(409, {{"accepted", false}, {"expected_seq", result.next}});
    case KvPushReceiver::Verdict::kMalformed:
      return ErrorReply(HttpError::kInvalidArgument, "'events' is no list of KV events; nothing was applied");
    case KvPushReceiver::Verdict::kWorkerLeft:
      return unknown();
    case KvPushReceiver::Verdict::kOtherModel:
      return ErrorReply(
          HttpError::kInvalidArgument,
          "'model' is another than the one whose blocks this rank has; push with \"reset\": true", 409);
    case KvPushReceiver::Verdict::kTooManyModels:
      return ErrorReply(
          HttpError::kInvalidArgument,
          Concat("'model' is one more than the ", ReportedBlocks::kMaxPushedModels, " that were pushed"),
          409);
    case KvPushReceiver::Verdict::kAccepted:
      break;
  }
  if (call->reset || result.cleared) index.ForgetPredictions(worker);
  json::object reply{{"accepted", true}, {"next_seq", result.next}};
  if (result.unusable != 0) {
    reply["unusable_events"] = result.unusable;
    reply["reason"] = result.why;
  }
  return JsonReply(202, std::move(reply));
}

constexpr OwnEndpoint kKvEventEndpoints[] = {
    {.path = "/admin/kv-events", .methods = "GET, HEAD", .render = &KvEvents},
    {.path = "/admin/kv-events/resync", .methods = "POST", .respond = &ResyncKvEvents},
    {.path = "/admin/kv-events/push",
     .methods = "POST",
     .max_body = kPushedEventsBytes,
     .respond = &PushKvEvents},
};

}  // namespace

std::span<const OwnEndpoint> KvEventEndpoints() { return kKvEventEndpoints; }

}  // namespace vllm_router
