// What a request is for a fleet with prefill and decode workers, and what is removed from its body.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "proxy/api/settings.h"
#include "proxy/disaggregation/disaggregation_feature.h"
#include "proxy/disaggregation/pd_exchange.h"
#include "proxy/disaggregation/pd_request.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/telemetry/stage_telemetry.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

PdRoute StagedRouteOf(const Request& request) {
  const PdSettings& pd = request.settings.pd;
  const RequestHead& head = *request.head;
  return PdRouteOf(
      head.method, head.path, head.websocket, {.two_stages = pd.extra_routes, .passed = pd.pass_paths});
}

bool IsUnknownPath(Request& request) {
  return HasStages(request) && StagedRouteOf(request) == PdRoute::kUnknown;
}

// What a worker would do with it is not known, nor in which members a client could steer transfers.
Task<Verdict> RejectPath(Request& request) {
  constexpr size_t kShownBytes = 128;
  const RequestHead& head = *request.head;
  request.info.pd = std::make_unique<PdInfo>();
  request.info.pd->kind = "rejected";
  const bool taken = co_await request.client.TakeShortBody();
  if (!taken) co_return Verdict::kEnd;
  const std::string_view method = head.websocket ? std::string_view("WebSocket") : head.method;
  std::string message = Concat(
      method, " ", CutAtCharacter(head.path, kShownBytes),
      " is passed on to no worker: in front of prefill and decode workers only known paths are, with their "
      "methods and in their usual spelling; the operator can name one that steers no engine "
      "(--pd-pass-paths).");
  co_await request.client.ReplyError(HttpError::kPathNotPassed, std::move(message));
  co_return Verdict::kEnd;
}

bool Strips(const Request& request) {
  return !HasStages(request) && request.settings.pd.strip_client_params == PdStrip::kAlways;
}

bool Plans(const Request& request) { return HasStages(request) || Strips(request); }

uint64_t BytesNeeded(const Request& request) {
  return Plans(request) ? request.settings.max_payload_size : 0;
}

void CountRemoved(StageTelemetry& stages, const StrippedMembers& removed) {
  stages.MembersRemoved("kv_transfer_params", removed.kv_transfer_params);
  stages.MembersRemoved("ec_transfer_params", removed.ec_transfer_params);
  stages.MembersRemoved("bootstrap", removed.bootstrap);
  stages.MembersRemoved("kv_hints", removed.kv_hints);
  stages.MembersRemoved("request_id", removed.request_id);
  stages.MembersRemoved("rank", removed.rank);
}

// Which workers may serve it is known from its body: two, or one of one stage.
Task<Verdict> PlanStages(Request& request, const std::shared_ptr<const FleetView>& fleet) {
  RequestInfo& info = request.info;
  info.pd = std::make_unique<PdInfo>();
  const PdSettings& settings = request.settings.pd;
  const PdRoute route = StagedRouteOf(request);
  const bool has_body = request.head->framing != BodyFraming::kNone;
  const KvConnector* const connector = ConnectorOf(settings.kv_connector, fleet->stages()->engine);
  if (connector == nullptr) {  // auto, and no worker's engine is known
    std::string message = NoPairMessage(settings, *fleet);
    co_await request.client.ReplyError(HttpError::kNoWorkers, std::move(message));
    co_return Verdict::kEnd;
  }
  BodyMap body = BodyMap::Read(has_body ? request.body->held() : std::string_view());
  PdPlan made;
  if (has_body) made = MakePdPlan(route, body, *connector);
  PdRequest& planned =
      request.state.Emplace<PdRequest>(PdRequest{route, connector, std::move(body), std::move(made)});
  request.edits.set_members(planned.body);
  const PdPlan& plan = planned.plan;
  switch (plan.kind) {
    case PdKind::kRejected: {
      info.pd->kind = "rejected";
      std::string message = plan.error;
      co_await request.client.ReplyError(HttpError::kInvalidBody, std::move(message));
      co_return Verdict::kEnd;
    }
    case PdKind::kTwoStages:
      info.pd->kind = "two_stages";
      CountRemoved(request.thread.telemetry.stages(), plan.stripped);
      request.workers.stages = EligibleWorkers::Stages::kBoth;
      request.UseAttempts(std::make_unique<PdExchange>(request.thread, request.settings, planned, info));
      co_return Verdict::kNext;
    case PdKind::kLocal:
      info.pd->kind = "local";
      info.pd->local = LocalReasonName(plan.reason);
      request.workers.stages = EligibleWorkers::Stages::kDecodeAlone;
      break;
    case PdKind::kSingle:
      info.pd->kind = "single";
      request.workers.stages = EligibleWorkers::Stages::kFirst;
      break;
  }
  if (settings.strip_client_params != PdStrip::kNever && !plan.plain.empty() && planned.body.ok()) {
    planned.copy = plan.plain.Apply(planned.body);
    request.edits.Strip(planned.copy);
    CountRemoved(request.thread.telemetry.stages(), plan.stripped);
  }
  co_return Verdict::kNext;
}

// In front of workers without stages; their bodies are read whole for it.
Task<Verdict> StripBody(Request& request) {
  if (request.head->framing == BodyFraming::kNone) co_return Verdict::kNext;
  BodyMap body = BodyMap::Read(request.body->held());
  PdPlan plan = MakeSinglePlan(body);
  if (plan.kind == PdKind::kRejected) {
    std::string message = plan.error;
    co_await request.client.ReplyError(HttpError::kInvalidBody, std::move(message));
    co_return Verdict::kEnd;
  }
  if (plan.plain.empty()) co_return Verdict::kNext;
  CountRemoved(request.thread.telemetry.stages(), plan.stripped);
  PdRequest& planned =
      request.state.Emplace<PdRequest>(PdRequest{PdRoute::kOther, nullptr, std::move(body), std::move(plan)});
  planned.copy = planned.plan.plain.Apply(planned.body);
  request.edits.set_members(planned.body);
  request.edits.Strip(planned.copy);
  co_return Verdict::kNext;
}

bool MayPlan(Request& request) { return Plans(request); }

Task<Verdict> Plan(Request& request) {
  const std::shared_ptr<const FleetView> fleet = request.thread.fleet.Get();
  Verdict verdict = Verdict::kNext;
  if (fleet->stages() != nullptr) {
    verdict = co_await PlanStages(request, fleet);
  } else {
    verdict = co_await StripBody(request);
  }
  co_return verdict;
}

}  // namespace

extern constexpr Step kStagedPathStep = {.name = "staged_path", .begin = &IsUnknownPath, .run = &RejectPath};

extern constexpr Step kStagesStep = {
    .name = "stages", .begin = &MayPlan, .run = &Plan, .needs = &BytesNeeded};

}  // namespace vllm_router
