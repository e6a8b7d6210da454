#include "events/kv_push.h"

#include <algorithm>
#include <string>

namespace vllm_router {

KvPushReceiver::~KvPushReceiver() {
  const MutexLock lock(mutex_);
  for (const auto& [key, source] : sources_) blocks_.SetTrust(key.first, KvTrust::kOff);
}

KvPushReceiver::Result KvPushReceiver::Push(const Batch& batch, int64_t now_ns) {
  const MutexLock lock(mutex_);
  const auto key = std::pair(batch.worker, batch.rank);
  auto found = sources_.find(key);
  const uint64_t expected =
      found == sources_.end() || batch.reset ? batch.number.value_or(0) : found->second.next;
  if (batch.number && *batch.number != expected) return {Verdict::kGap, expected};
  const bool other_model = found != sources_.end() && found->second.model != batch.model;
  if (other_model && !batch.reset) return {Verdict::kOtherModel, expected};
  if (!blocks_.MayAddPushedModel(batch.model)) return {Verdict::kTooManyModels, expected};
  if (!DecodeKvBatch(batch.payload, &batch_)) return {Verdict::kMalformed, expected};
  if (blocks_.TrustOf(batch.worker) == KvTrust::kOff) blocks_.SetTrust(batch.worker, KvTrust::kWaiting);
  if (blocks_.TrustOf(batch.worker) == KvTrust::kOff) return {Verdict::kWorkerLeft, 0};
  if (batch.reset && found != sources_.end()) {
    sources_.erase(found);
    found = sources_.end();
  }
  if (found == sources_.end()) {
    // Those that left are not asked for any more.
    std::erase_if(
        sources_, [this](const auto& entry) { return blocks_.TrustOf(entry.first.first) == KvTrust::kOff; });
    found = sources_.try_emplace(key, &blocks_, batch.worker, batch.model).first;
    found->second.complete = expected == 0 || batch.reset;
  }
  Source& source = found->second;
  const EventApplier::Figures before = source.applier.figures();
  const bool cleared = source.applier.Apply(batch_, now_ns).cleared;
  source.complete = source.complete || cleared;
  if (cleared) source.events = source.unusable = 0;
  source.next = expected + 1;
  blocks_.SettleDebt(batch.worker);
  blocks_.AddPushedModel(batch.model);
  Result result{.verdict = Verdict::kAccepted, .next = source.next, .cleared = cleared};
  uint64_t most = 0;
  const auto count = [&](uint64_t dropped, std::string_view why) {
    result.unusable += dropped;
    if (dropped > most) result.why = why;
    most = std::max(most, dropped);
  };
  for (size_t drop = 0; drop < batch_.dropped.size(); ++drop)
    count(batch_.dropped[drop], KvDropName(static_cast<KvDrop>(drop)));
  for (size_t drop = 0; drop < kKvEventDropCount; ++drop) {
    const uint64_t dropped = source.applier.figures().dropped[drop] - before.dropped[drop];
    count(dropped, KvEventDropName(static_cast<KvEventDrop>(drop)));
  }
  source.events += batch_.events.size() + batch_.dropped[0] + batch_.dropped[1];
  source.unusable += result.unusable;
  SetTrust(batch.worker);
  return result;
}

std::vector<KvPushReceiver::Status> KvPushReceiver::Report() const {
  const MutexLock lock(mutex_);
  std::vector<Status> report;
  for (const auto& [key, source] : sources_) {
    report.push_back(
        {.worker = key.first,
         .rank = key.second,
         .next = source.next,
         .complete = source.complete,
         .events = source.events,
         .unusable = source.unusable,
         .block_size = source.applier.engine_block_size(),
         .blocks = source.applier.TierCounts()});
  }
  return report;
}

void KvPushReceiver::SetTrust(WorkerId worker) {
  KvTrust trust = KvTrust::kExact;
  for (auto source = sources_.lower_bound({worker, 0});
       source != sources_.end() && source->first.first == worker; ++source) {
    if (2 * source->second.unusable > source->second.events) trust = KvTrust::kMismatch;
    if (!source->second.complete) trust = LessTrusted(trust, KvTrust::kPartial);
  }
  blocks_.SetTrust(worker, trust);
}

}  // namespace vllm_router
