// The workers of a request's model: found by the body's member `model`, or by the query of a request without a body.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "base/time_units.h"
#include "http/query.h"
#include "proxy/api/json_text.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/permit.h"
#include "proxy/thread/server_limits.h"
#include "routing/model_alias.h"
#include "routing/model_member.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

using Result = RequestedModel::Result;

constexpr int64_t kModelLookNanos = 100 * kNanosPerMs;  // between looks for a worker of a model

bool MattersHere(const Request& request) {
  return request.thread.fleet.Get()->models()->decides() || !request.settings.model_aliases.empty();
}

// Its workers depend on its model, which is in the body. Of a path that the router does not know, a name that is listed
// is obeyed, and any other is left to the worker.
bool ReadsModel(const Request& request) {
  if (request.head->framing == BodyFraming::kNone || !MattersHere(request)) return false;
  return request.route().inference || request.head->method == "POST";
}

uint64_t ModelBytesNeeded(const Request& request) { return ReadsModel(request) ? kRoutedBodyBytes : 0; }

bool IsOfApi(const RequestHead& head) {
  return head.path.starts_with("/v1/") || head.path.starts_with("/v2/");
}

// The body has been read as far as it is before a worker is chosen.
void EndReading(Request& request) {
  request.stream_body = !request.body->complete();
  if (request.route().inference && !request.thread.fleet.Get()->models()->decides()) {
    request.thread.telemetry.DemandedAny();
  }
  if (!request.stream_body) request.client.watch().Begin();
  request.info.body_ns = request.thread.clock.NowNanos() - request.workers.model_wait_ns;
}

// The model that this request for an alias is for.
std::string TargetOf(Request& request, const ModelAliases::Alias& alias) {
  request.workers.alias = &alias;
  uint64_t hash = request.thread.ids.Below(alias.total);
  if (alias.targets.size() > 1) {
    RequestView view{
        .headers = request.head->fields, .path = request.head->path, .body = request.body->held()};
    view.body_is_padded = true;
    hash = request.thread.router->SessionHash(view).value_or(hash);
  }
  return ModelAliases::TargetOf(alias, hash);
}

// Until a worker of the model may be chosen. The request holds no permit, so that others pass it; as many as may
// queue for one wait here. A model that was known is asleep at the end of the wait, even if its memory has ended. A body
// that others wait for the memory of does not wait: requests that have a worker come first.
Task<Result> WaitForModel(Request& request, const std::string& name, ModelDemand& demand) {
  IoThread& thread = request.thread;
  ServerLimits& limits = thread.limits;
  RequestBody& body = *request.body;
  Permit place(limits.model_waits, thread);
  if (request.settings.queue_size == 0 || thread.draining || !place.TryAcquire(1)) co_return Result::kAsleep;
  const bool was_read = body.complete();
  if (was_read) {
    request.client.watch().Begin();
  } else {
    request.client.watch().BeginEnd();
  }
  demand.waiting.fetch_add(1, std::memory_order_relaxed);
  request.scope.set_long();
  const int64_t began = thread.clock.NowNanos();
  const int64_t until = began + request.settings.model_wait_ms * kNanosPerMs;
  Result result = Result::kAsleep;
  bool found = false;
  const auto is_in_the_way = [&] {
    return body.bytes() > kSmallBodyBytes && limits.body_memory.waiting() != 0;
  };
  for (int64_t now = began; !found && now < until && !request.is_cancelled() && !is_in_the_way();) {
    // All that wait look ten thousand times a second at most.
    const auto share = static_cast<int64_t>(1 + limits.model_waits.in_use() / 1000);
    co_await request.scope.Pause(thread.loop, std::min(until - now, kModelLookNanos * share));
    now = thread.clock.NowNanos();
    const std::shared_ptr<const FleetView> whole = thread.fleet.Get();
    result = RequestedModel::FindPool(whole, request.settings, name, now);
    found = RequestedModel::HasWorkers(whole, name, result);
  }
  request.scope.set_long(false);
  demand.waiting.fetch_sub(1, std::memory_order_relaxed);
  if (!was_read) request.client.watch().StopEnd();
  request.info.queue_ns = request.workers.model_wait_ns = thread.clock.NowNanos() - began;
  co_return found ? result : Result::kAsleep;
}

// `must_exist`: else a name that is not known is left to the worker.
Task<Verdict> FindWorkers(Request& request, std::string name, bool must_exist) {
  IoThread& thread = request.thread;
  request.info.model.assign(name, 0, kMaxLoggedTextBytes);
  std::shared_ptr<const FleetView> whole = thread.fleet.Get();
  const ModelPools& pools = *whole->models();
  if (!must_exist && pools.Find(name) == nullptr) co_return Verdict::kNext;
  Result result = RequestedModel::FindPool(whole, request.settings, name, thread.clock.NowNanos());
  RequestedModel::Count(pools, name, result);
  if (result == Result::kAsleep && request.settings.model_wait_ms > 0) {
    const std::shared_ptr<ModelDemand> demand = pools.Find(name)->demand;
    whole.reset();  // the wait may outlast many of them
    result = co_await WaitForModel(request, name, *demand);
    if (request.is_cancelled()) co_return Verdict::kNext;
  }
  switch (result) {
    case Result::kAll:
    case Result::kForwarded:
      break;
    case Result::kPool:
    case Result::kAnything:
      request.workers.model = std::make_unique<RequestedModel>(std::move(name));
      break;
    case Result::kUnknown: {
      std::string message = UnknownModelMessage(
          name, *thread.fleet.Get()->models(), request.settings.model_aliases,
          thread.limits.models_are_private.load(std::memory_order_relaxed));
      co_await request.client.ReplyError(HttpError::kModelNotFound, std::move(message));
      co_return Verdict::kEnd;
    }
    case Result::kAsleep: {
      const HeaderField retry_after{"Retry-After", "10"};
      std::string message = SleepingModelMessage(name);
      co_await request.client.ReplyError(
          HttpError::kNoWorkersForModel, std::move(message), {&retry_after, 1});
      co_return Verdict::kEnd;
    }
  }
  co_return Verdict::kNext;
}

// `?model=` of a request without a body, as of a WebSocket to /v1/realtime. The last one counts, as engines read it.
Task<Verdict> FindInQuery(Request& request) {
  const RequestHead& head = *request.head;
  const std::optional<QueryParameter> found = FindQueryParameter(head.query, "model");
  if (!found || found->value.empty()) co_return Verdict::kNext;
  std::string name = found->value;
  if (const ModelAliases::Alias* const alias = request.settings.model_aliases.Find(name)) {
    name = TargetOf(request, *alias);
    const auto before = static_cast<size_t>(found->spelled.data() - head.query.data());
    request.head.ReplaceQueryBy(Concat(
        head.path, "?", head.query.substr(0, before), PercentEncoded(name),
        head.query.substr(before + found->spelled.size())));
  }
  const Verdict verdict = co_await FindWorkers(request, std::move(name), IsOfApi(head));
  co_return verdict;
}

// The member `model` of the body. Where it stands behind the part that is routed by, more is read.
Task<Verdict> FindInBody(Request& request) {
  RequestBody& body = *request.body;
  const RequestHead& head = *request.head;
  const ModelAliases& aliases = request.settings.model_aliases;
  const std::string_view type = FindHeader(head.fields, "content-type").value_or("");
  const bool is_form = IsForm(type);
  const auto find = [&] {
    return is_form ? FindModelInForm(type, body.held()) : FindModelMember(body.held());
  };
  ModelMember found = find();
  const ModelAliases::Alias* alias = aliases.Find(found.name);
  // Engines have endpoints of their own, to which each of them gives its only model.
  const bool is_known_path = request.route().inference;
  const bool names_one = is_known_path && IsOfApi(head);
  const bool is_cut = found.kind == ModelMember::Kind::kMissing || alias != nullptr;
  if (!body.complete() && is_cut && names_one) {
    const RequestBody::End end = co_await body.Fill(kNamedBodyBytes);
    if (end != RequestBody::End::kOk) {
      co_await request.client.ReplyBodyFailed(end);
      co_return Verdict::kEnd;
    }
    found = find();
    alias = aliases.Find(found.name);
  }
  if (!body.complete() && names_one && (alias != nullptr || found.kind == ModelMember::Kind::kMissing)) {
    std::string message =
        alias != nullptr
            ? Concat("The body of a request for an alias of a model may have ", kNamedBodyBytes, " bytes.")
            : Concat("The first ", kNamedBodyBytes, " bytes of the body name no model; put it first.");
    co_await request.client.ReplyError(HttpError::kModelRequired, std::move(message));
    co_return Verdict::kEnd;
  }
  if (found.kind == ModelMember::Kind::kMissing && !found.whole) co_return Verdict::kNext;  // malformed
  std::string name = std::move(found.name);
  if (alias != nullptr && body.complete()) {
    name = TargetOf(request, *alias);
    body.Replace(found.offset, found.length, found.quoted ? JsonQuoted(name) : name);
  } else if (found.kind == ModelMember::Kind::kMissing && is_known_path) {
    const std::shared_ptr<const FleetView> whole = request.thread.fleet.Get();
    const ModelPools& pools = *whole->models();
    const std::vector<std::string>& bases = pools.names->bases;
    name = bases.size() == 1 ? bases.front() : request.settings.default_model;
    if (const auto* const by_default = aliases.Find(name)) name = TargetOf(request, *by_default);
    if (name.empty() && bases.size() > 1 && names_one && pools.decides()) {
      std::string message = ModelRequiredMessage(
          pools, request.thread.limits.models_are_private.load(std::memory_order_relaxed));
      co_await request.client.ReplyError(HttpError::kModelRequired, std::move(message));
      co_return Verdict::kEnd;
    }
  }
  if (name.empty()) co_return Verdict::kNext;
  const Verdict verdict = co_await FindWorkers(request, std::move(name), is_known_path);
  co_return verdict;
}

bool NamesModel(Request& request) {
  const bool in_query =
      request.head->framing == BodyFraming::kNone && !request.head->query.empty() && MattersHere(request);
  if (in_query || ReadsModel(request)) return true;
  EndReading(request);
  return false;
}

Task<Verdict> FindModel(Request& request) {
  const bool in_query = request.head->framing == BodyFraming::kNone;
  Verdict verdict = Verdict::kNext;
  if (in_query) {
    verdict = co_await FindInQuery(request);
  } else {
    verdict = co_await FindInBody(request);
  }
  if (verdict == Verdict::kNext && !request.is_cancelled()) EndReading(request);
  co_return verdict;
}

}  // namespace

extern constexpr Step kModelStep = {
    .name = "model", .begin = &NamesModel, .run = &FindModel, .needs = &ModelBytesNeeded};

}  // namespace vllm_router
