#include "policy/pool.h"

#include "policy/merged_stats.h"

namespace vllm_router {
namespace {

void ReportParts(const PolicyParts& parts, const FleetView& fleet, StatsWriter* writer) {
  parts.policy->Report(fleet, writer);
  if (parts.index != nullptr) parts.index->Report(fleet, writer);
}

}  // namespace

void Pool::SetCacheSize(WorkerId worker, const CacheSize& size) {
  for (const PolicyParts* const parts : {&main_, &decode_}) {
    if (parts->index != nullptr) parts->index->SetCacheSize(worker, size);
    if (parts->policy != nullptr) parts->policy->SetCacheSize(worker, size);
  }
}

void Pool::RecordBlocks(WorkerId worker, std::span<const BlockHash> blocks) {
  for (const PolicyParts* const parts : {&main_, &decode_}) {
    if (parts->index != nullptr) parts->index->RecordBlocks(worker, blocks);
  }
}

void Pool::ForgetCache(WorkerId worker) {
  for (const PolicyParts* const parts : {&main_, &decode_}) {
    if (parts->index != nullptr) parts->index->Forget(worker);
    if (parts->policy != nullptr) parts->policy->ForgetCache(worker);
  }
}

void Pool::Report(const FleetView& fleet, StatsWriter* writer) const {
  if (!is_staged()) return ReportParts(main_, fleet, writer);
  MergedStats merged;
  ReportParts(main_, fleet, &merged);
  std::vector<uint8_t> is_decode;
  for (const FleetView::Member& member : fleet.members())
    is_decode.push_back(member.worker->stage == Stage::kDecode ? 1 : 0);
  merged.BeginSecond(is_decode);
  ReportParts(decode_, fleet, &merged);
  merged.WriteTo(writer);
}

}  // namespace vllm_router
