#include "disaggregation/mooncake_engines.h"

#include <utility>

#include "base/text.h"
#include "disaggregation/transfer_parameters.h"

namespace vllm_router {
namespace {

std::optional<uint32_t> RankOf(std::string_view name) {
  const std::optional<uint64_t> rank = ParseDecimal(name);
  const bool is_plain = name.size() == 1 || !name.starts_with('0');
  if (!rank || *rank >= kMaxMooncakeRanks || !is_plain) return std::nullopt;
  return static_cast<uint32_t>(*rank);
}

}  // namespace

std::optional<std::map<uint32_t, std::string>> ReadMooncakeEngines(std::string_view reply) {
  const BodyMap map = BodyMap::Read(reply);
  if (!map.ok()) return std::nullopt;
  std::map<uint32_t, std::string> engines;
  std::string scratch;
  for (const BodyMap::Member& member : map.members()) {
    const std::optional<uint32_t> rank = RankOf(member.Name(&scratch).value_or(""));
    if (!rank) continue;
    engines.erase(*rank);  // of a rank that is told twice the last one counts
    std::optional<std::string> id = TextIn(BodyMap::Read(member.value), "engine_id", kMaxMooncakeEngineId);
    if (id) engines.emplace(*rank, *std::move(id));
  }
  return engines;
}

}  // namespace vllm_router
