#include "proxy/disaggregation/pair_choice.h"

#include <utility>
#include <vector>

#include "proxy/api/settings.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "worker/fleet_view.h"

namespace vllm_router {

PairChoice::PairChoice(IoThread& thread, const Settings& settings, PdInfo& info)
    : thread_(thread),
      settings_(settings),
      info_(info),
      prefill_(thread, settings),
      decode_(thread, settings) {}

void PairChoice::Begin(WorkerChoice::Request request, const KvConnector& connector) {
  connector_ = &connector;
  request.stage = Stage::kPrefill;
  prefill_.choice.Begin(request);
  prefill_.choice.set_probe(WorkerChoice::Probe::kLate);
  request.stage = Stage::kDecode;
  decode_.choice.Begin(request);
  decode_.choice.set_probe(WorkerChoice::Probe::kLate);
}

std::optional<PdAttemptKind> PairChoice::ChooseFirst() {
  if (ChooseBypass()) return PdAttemptKind::kBypass;
  if (Choose({.next = PdAttemptKind::kPair})) return PdAttemptKind::kPair;
  const bool is_alone = MayServeAlone() && prefill_.choice.Fleet()->in_rotation() == 0;
  if (!is_alone || !Choose({.next = PdAttemptKind::kLocal})) return std::nullopt;
  info_.local = "prefill_loss";
  return PdAttemptKind::kLocal;
}

bool PairChoice::ChooseBypass() {
  if (!connector_->traits().decode_can_prefill || !IsOfFleetsEngine()) return false;
  std::optional<WorkerChoice::Bypass> bypass = decode_.choice.SelectBypass();
  if (!bypass) return false;
  decode_.selected = std::move(bypass->selected);
  info_.kind = "local";
  info_.local = "bypass";
  info_.uncached_tokens = bypass->uncached_tokens;
  info_.saved_tokens = bypass->saved_tokens;
  return true;
}

// Under --kv-connector auto the fleet may be another engine's by now.
bool PairChoice::IsOfFleetsEngine() const {
  const EngineKind engine = thread_.fleet.Get()->stages()->engine;
  return ConnectorOf(settings_.pd.kv_connector, engine) == connector_;
}

// A pair of another kv_group comes before what is the last resort in one.
bool PairChoice::Choose(const PdRetry& retry) {
  return IsOfFleetsEngine() &&
         (ChooseWorkers(retry, /*last_resort=*/false) || ChooseWorkers(retry, /*last_resort=*/true));
}

bool PairChoice::ChooseWorkers(const PdRetry& retry, bool last_resort) {
  const bool needs_prefill = retry.next == PdAttemptKind::kPair;
  const bool needs_blocks = retry.next != PdAttemptKind::kLocal;
  const bool prefers = retry.prefer_p && prefill_.worker != nullptr;
  std::vector<std::string> in_vain;  // kv_groups in which no decode worker was chosen
  prefill_.selected.reset();
  decode_.selected.reset();
  all_full_ = false;
  for (;;) {
    if (needs_prefill) {
      prefill_.selected = prefill_.choice.Select(
          {.after_loss = prefill_.lost,
           .untried = retry.exclude_p,
           .preferred = prefers ? std::optional(prefill_.worker->id) : std::nullopt,
           .without_groups = in_vain,
           .last_resort = last_resort});
      if (!prefill_.selected) {
        all_full_ |= prefill_.choice.all_full();
        return false;
      }
    }
    const Worker* source = needs_blocks ? prefill_.worker.get() : nullptr;
    if (needs_prefill) source = &prefill_.selected->ticket.worker();
    decode_.selected = decode_.choice.Select(
        {.after_loss = decode_.lost,
         .untried = retry.exclude_d,
         .transferred = needs_blocks,
         .source = source,
         .last_resort = last_resort});
    if (decode_.selected) return true;
    all_full_ |= decode_.choice.all_full();
    std::string group = needs_prefill ? source->kv_group : std::string();
    prefill_.selected.reset();
    if (group.empty()) return false;
    in_vain.push_back(std::move(group));
  }
}

// No decode worker of prefill's group is left to fetch its blocks. A pair of another group computes the prompt again.
bool PairChoice::ChooseOtherGroup(const PdRetry& retry) {
  return retry.next == PdAttemptKind::kDecodeOnly && !prefill_.worker->kv_group.empty() &&
         Choose({.next = PdAttemptKind::kPair, .exclude_d = retry.exclude_d});
}

void PairChoice::Take(PdAttemptKind kind) {
  if (prefill_.selected) {
    TakeAt(prefill_);
    info_.prefill = prefill_.worker;
  }
  TakeAt(decode_);
  if (kind == PdAttemptKind::kBypass || info_.uncached_tokens == 0) return;
  info_.uncached_tokens = info_.saved_tokens = 0;  // the bypass has failed
  if (kind != PdAttemptKind::kPair) return;
  info_.kind = "two_stages";
  info_.local = {};
}

void PairChoice::TakeAt(Side& side) {
  side.worker = side.selected->ticket.shared_worker();
  thread_.telemetry.Decided(side.worker, side.selected->ticket.decision());
}

// If no other worker may have the blocks, this one is sent the request all the same: else a prefill's work is lost.
bool PairChoice::TakePassAgain() {
  decode_.selected->pass = decode_.worker->breaker.TryPass(settings_.breaker);
  if (decode_.selected->pass) return false;
  if (connector_->traits().rebindable) {
    decode_.choice.SetAttempted(decode_.worker->id);
    std::optional<WorkerChoice::Selected> other;
    if (decode_.choice.AnyUntried()) {
      other = decode_.choice.Select(
          {.after_loss = decode_.lost,
           .untried = true,
           .transferred = true,
           .source = prefill_.worker.get(),
           .last_resort = false});
    }
    if (other) {
      decode_.selected = std::move(other);
      TakeAt(decode_);
      return true;
    }
  }
  decode_.selected->pass = decode_.worker->breaker.PassInPanic();
  return false;
}

// A request that was local from the start has no prefill worker.
void PairChoice::Exclude(const PdRetry& retry) {
  if (retry.exclude_p && prefill_.worker != nullptr) prefill_.choice.SetAttempted(prefill_.worker->id);
  if (retry.exclude_d) decode_.choice.SetAttempted(decode_.worker->id);
}

bool PairChoice::MayServeAlone() const {
  return settings_.pd.on_prefill_loss == PdOnPrefillLoss::kLocal && connector_->traits().decode_can_prefill;
}

bool PairChoice::MayDecodeStill() const {
  const std::shared_ptr<const FleetView> fleet = decode_.choice.Fleet();
  const std::optional<uint32_t> position = fleet->Find(decode_.worker->id);
  return position && fleet->members()[*position].in_rotation();
}

}  // namespace vllm_router
