#include "proxy/peer_sync/peer_sync_service.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "proxy/control/health_checker.h"
#include "proxy/control/load_poller.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

PeerSyncService::PeerSyncService(
    IoThread& control, PeerSyncServiceOptions options, PeerConnection connection, HealthChecker& health,
    LoadPoller& loads, Drainer& drainer)
    : thread_(control),
      options_(options),
      health_(health),
      loads_(loads),
      rounds_(
          {.loop = control.loop,
           .buffers = control.buffers,
           .resolver = control.resolver,
           .clock = control.clock,
           .router = *control.router},
          std::move(connection), Calls()),
      lease_(control, rounds_.link(), rounds_.streams(), options_.shares_rate_limit),
      admin_(control, rounds_.sync(), rounds_.streams(), drainer, [this](const Status& why) {
        rounds_.Warn(why);
      }) {
  rounds_.PublishReport();
}

// Called once all members are there.
PeerRounds::Calls PeerSyncService::Calls() {
  PeerRounds::Calls calls = {
      .turn = [this](int64_t now_ns) { Turn(now_ns); },
      .suspected =
          [this](const std::shared_ptr<Worker>& worker, int64_t now_ns) { CheckHealth(worker, now_ns); },
      .fact = nullptr,
      .complete = [this](PeerSyncReport* report) { Complete(report); },
      .when_alone = "this router polls the workers' loads instead"};
  if (options_.shares_admin) calls.fact = [this](const AdminFact& fact) { admin_.CarryOut(fact); };
  return calls;
}

void PeerSyncService::Start() {
  rounds_.Start();
  lease_.Start();
}

void PeerSyncService::Stop() {
  lease_.Stop();
  admin_.Stop();
  rounds_.Stop();
}

void PeerSyncService::Suspect(const std::shared_ptr<Worker>& worker) {
  rounds_.TellSuspect(worker->id, PeerFrame::Cause::kRefused);
}

void PeerSyncService::CacheEmptied(const std::shared_ptr<Worker>& worker) {
  rounds_.TellForgotten(worker->id);
}

OtherRouters::Presence PeerSyncService::presence() const {
  const PeerSyncReport report = Report();
  Presence presence{.connected = report.up, .leads = report.up};
  for (const PeerSyncReport::Member& member : report.members) {
    if (member.state != PeerTable::State::kLive) continue;
    ++presence.routers;
    if (member.router < report.router) presence.leads = false;
  }
  return presence;
}

void PeerSyncService::AddConditions(const AddCondition& add) const {
  if (Report().up) return;
  add("peer_sync", {},
      Concat(
          "This router and the others do not hear each other by ", rounds_.pool().options().url.Shown(),
          ": it routes by its own requests and by the workers' loads."));
}

void PeerSyncService::AddTopic(PeerTopic* topic) { rounds_.sync().AddTopic(topic); }

std::string PeerSyncService::TellAdmin(AdminFact said) {
  const PeerSyncReport report = Report();
  const auto others = static_cast<size_t>(std::ranges::count_if(
      report.members, [](const auto& member) { return member.state == PeerTable::State::kLive; }));
  if (options_.shares_admin) thread_.loop.Post([this, fact = std::move(said)] { admin_.Tell(fact); });
  if (others == 0) return {};
  return options_.shares_admin ? Concat("all ", others + 1, " routers")
                               : Concat("this router of ", others + 1);
}

void PeerSyncService::Turn(int64_t now_ns) {
  const PeerSync& sync = rounds_.sync();
  lease_.SetRouters(sync.routers());
  loads_.SetAlone(sync.alone());
  admin_.Turn(now_ns);
  std::erase_if(
      suspected_ns_, [now_ns](const auto& entry) { return now_ns - entry.second >= kSuspectedNanos; });
}

void PeerSyncService::CheckHealth(const std::shared_ptr<Worker>& worker, int64_t now_ns) {
  int64_t& last = suspected_ns_.try_emplace(worker->id, INT64_MIN / 2).first->second;
  if (now_ns - last < kSuspectedNanos) return;
  last = now_ns;
  health_.ReportPassiveFailure(worker);
}

void PeerSyncService::Complete(PeerSyncReport* report) const {
  report->lease = lease_.counts();
  report->bytes_sent += report->lease.bytes_sent;
  if (report->trouble.empty()) report->trouble = report->lease.trouble;
}

}  // namespace vllm_router
