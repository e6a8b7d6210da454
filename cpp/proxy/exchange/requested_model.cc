#include "proxy/exchange/requested_model.h"

#include <algorithm>
#include <span>
#include <vector>

#include "base/text.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

constexpr size_t kMostListed = 20;
constexpr size_t kShownBytes = 100;  // of a name

// Without control characters, which a client might print.
std::string Shown(std::string_view name) {
  std::string shown(CutAtCharacter(name, kShownBytes));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '`') c = '?';
  }
  if (shown.size() < name.size()) shown += "...";
  return shown;
}

std::string Listed(std::span<const std::string> names) {
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMostListed); ++i)
    text += (i == 0 ? "" : ", ") + Shown(names[i]);
  if (names.size() > kMostListed) text += Concat(" and ", names.size() - kMostListed, " more");
  return text;
}

// Its last workers are about to leave.
bool IsDraining(const FleetView& whole, const ModelPools::Positions& workers) {
  return std::ranges::all_of(workers, [&](uint32_t position) { return whole.members()[position].draining; });
}

}  // namespace

RequestedModel::Result RequestedModel::FindPool(
    const std::shared_ptr<const FleetView>& whole, const Settings& settings, std::string_view name,
    int64_t now_ns) {
  const ModelPools& pools = *whole->models();
  const Result result = pools.Resolve(name, now_ns, settings.model_memory_ns());
  if (result == Result::kPool && IsDraining(*whole, pools.names->pools[pools.Find(name)->pool].workers))
    return Result::kAsleep;
  return result == Result::kUnknown && settings.forward_unknown_models ? Result::kForwarded : result;
}

void RequestedModel::Count(const ModelPools& pools, std::string_view name, Result result) {
  const auto count = [](std::atomic<uint64_t>& counter) { counter.fetch_add(1, std::memory_order_relaxed); };
  switch (result) {
    case Result::kPool:
      return count(pools.Find(name)->demand->served);
    case Result::kAsleep:
      return count(pools.Find(name)->demand->asleep);
    case Result::kUnknown:
    case Result::kForwarded:
      return count(pools.names->other->unknown);
    case Result::kAnything:
      if (const ModelPools::Name* const known = pools.Find(name); known != nullptr)
        count(known->demand->served);
      return;
    case Result::kAll:
      return;
  }
}

bool RequestedModel::HasWorkers(
    const std::shared_ptr<const FleetView>& whole, std::string_view name, Result result) {
  const ModelPools& pools = *whole->models();
  switch (result) {
    case Result::kPool:
      return pools.ViewOf(whole, *pools.Find(name))->in_rotation() != 0;
    case Result::kAll:
      return whole->in_rotation() != 0;
    case Result::kAnything:
    case Result::kForwarded:
      return true;
    case Result::kAsleep:
    case Result::kUnknown:
      return false;
  }
  return false;
}

std::shared_ptr<const FleetView> RequestedModel::FleetIn(
    const std::shared_ptr<const FleetView>& whole) const {
  const ModelPools& pools = *whole->models();
  const ModelPools::Name* const known = pools.Find(name_);
  if (known != nullptr && known->has_pool()) return pools.ViewOf(whole, *known);
  if (pools.anything != nullptr) return pools.anything;
  if (!pools.names->any_said) return whole;
  return std::make_shared<const FleetView>(whole->PoolOf({}, 0));  // its workers have left
}

std::string UnknownModelMessage(
    std::string_view name, const ModelPools& pools, const ModelAliases& aliases, bool are_private) {
  if (are_private) return Concat("The model `", Shown(name), "` does not exist.");
  std::vector<std::string> served;
  for (const ModelAliases::Alias& alias : aliases.aliases()) served.push_back(alias.name);
  for (const std::string& known : pools.names->order) {
    if (pools.Find(known)->is_listed()) served.push_back(known);
  }
  return Concat("The model `", Shown(name), "` does not exist. Served: ", Listed(served), ".");
}

std::string ModelRequiredMessage(const ModelPools& pools, bool are_private) {
  const std::string message = "The request names no model; name one as its member `model`.";
  return are_private ? message : Concat(message, " Served: ", Listed(pools.names->bases), ".");
}

std::string SleepingModelMessage(std::string_view name) {
  return Concat("No worker serves the model `", Shown(name), "` now; retry later.");
}

}  // namespace vllm_router
