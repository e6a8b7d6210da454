#include "proxy/disaggregation/pair_response.h"

#include <string>
#include <utility>

#include "http/head_writer.h"
#include "proxy/api/settings.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"

namespace vllm_router {

PairResponse::PairResponse(
    IoThread& thread, const Settings& settings, RequestInfo& info, ArrivingResponse& arriving)
    : thread_(thread),
      info_(info),
      arriving_(arriving),
      at_prefill_{.errors = {thread, settings.breaker}, .kept = {}},
      at_decode_{.errors = {thread, settings.breaker}, .kept = {}} {}

void PairResponse::Relay(UpstreamPair& pair, const RoutingKey& key) {
  relayed_ = pair.decode();
  UpstreamRequest& request = relayed_->request();
  arriving_.Begin(request);
  request.outcome().RecordAttempt();
  info_.worker = request.worker();
  info_.decision = request.ticket().decision();
  info_.policy = request.ticket().policy().name();
  if (pair.is_pair()) thread_.router->LearnTransferred(key, *info_.worker);
  PdInfo& pd = *info_.pd;
  if (pd.prefill_end_ns != 0) pd.handoff_ns = thread_.clock.NowNanos() - pd.prefill_end_ns;
  if (relayed_->result().is_whole) UseMerged(pair);
}

// Decode's response, which was read whole, with a part of prefill's.
void PairResponse::UseMerged(const UpstreamPair& pair) {
  const std::string body = pair.MergedBody();
  std::string bytes;
  WriteWholeHead(relayed_->request().response().head(), body.size(), &bytes);
  bytes.append(body);
  relayed_->request().progress().CountFirstByte();
  arriving_.Use(at_decode_.kept.emplace(std::move(bytes), relayed_->worker()), /*to_head=*/false);
}

Task<void> PairResponse::Drop() {
  UpstreamRequest& request = relayed_->request();
  co_await request.sender().Stop();
  request.connection().Release(/*reusable=*/false);
  if (!request.ticket().finished()) {
    request.ticket().Finish({.end = Outcome::End::kClientGone, .status = relayed_->result().status});
  }
}

void PairResponse::Keep(StageLeg& leg) {
  std::string bytes = leg.TakeBytes();
  if (!bytes.empty()) at(leg.stage()).kept.emplace(std::move(bytes), leg.worker());
}

bool PairResponse::Use(Stage stage) {
  std::optional<KeptResponse>& kept = at(stage).kept;
  if (!kept) return false;
  arriving_.Use(*kept, /*to_head=*/false);
  info_.worker = kept->worker();
  return true;
}

void PairResponse::SettleErrors() {
  at_prefill_.errors.Ended();
  at_decode_.errors.Ended();
}

}  // namespace vllm_router
