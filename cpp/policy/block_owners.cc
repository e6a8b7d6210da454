#include "policy/block_owners.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

namespace vllm_router {
namespace {

constexpr size_t kSweepRuns = 64;  // a slice of some 20 us
// A limit, so that one worker that reports nonsense, or one client that wants huge outputs, does not
// fill the modelled caches.
constexpr uint64_t kMostOutputTokens = 32'768;

}  // namespace

BlockOwners::BlockOwners(const BlockCacheTrackerOptions& options, uint64_t seed, bool worker_block_sizes)
    : tracker_(std::make_unique<BlockCacheTracker>(options)),
      nameless_(seed),
      block_tokens_(worker_block_sizes ? std::make_unique<std::atomic<uint32_t>[]>(kMaxWorkers) : nullptr) {}

std::shared_ptr<const FleetPlan> BlockOwners::MakePlan(
    const void* policy, std::shared_ptr<const FleetPlan> inner, const FleetView& next) {
  const Plan* last = FindPlan<Plan>(next, policy);
  auto plan = std::make_shared<Plan>(policy, std::move(inner), next.membership_version());
  if (last != nullptr && last->membership == next.membership_version()) {
    plan->known = last->known;
    plan->weights = last->weights;
    plan->position_of = last->position_of;
    return plan;
  }
  plan->position_of.assign(kMaxWorkers, kNowhere);
  std::vector<Plan::Known> gone = last != nullptr ? last->known : std::vector<Plan::Known>();
  for (const FleetView::Member& member : next.members()) {
    const WorkerId worker = member.worker->id;
    const auto found =
        std::find_if(gone.begin(), gone.end(), [&](const auto& known) { return known.worker == worker; });
    Plan::Known known{worker, {}};
    if (found != gone.end()) {
      known = *found;
      gone.erase(found);
    } else {
      known.owner = Enter();
    }
    plan->position_of[static_cast<size_t>(known.owner)] = static_cast<uint32_t>(plan->known.size());
    plan->known.push_back(known);
    plan->weights.push_back(static_cast<double>(member.worker->weight) / kWeightOne);
  }
  for (const Plan::Known& known : gone) tracker_->RemoveWorker(known.owner);
  while (tracker_->Sweep(kSweepRuns)) {
  }
  const std::lock_guard lock(mutex_);
  owner_of_.clear();
  for (const Plan::Known& known : plan->known) owner_of_[static_cast<uint32_t>(known.worker)] = known.owner;
  return plan;
}

const BlockOwners::Plan* BlockOwners::Find(const void* policy, const FleetView& fleet) {
  const Plan* plan = FindPlan<Plan>(fleet, policy);
  return plan != nullptr && plan->membership == fleet.membership_version() ? plan : nullptr;
}

void BlockOwners::Match(const RoutingKey& key, BlockMatches* matches) {
  FindMatches(key, matches);
  if (block_tokens_ != nullptr) RoundDown(key.usable_blocks, matches);
}

void BlockOwners::RoundDown(uint64_t usable_blocks, BlockMatches* matches) const {
  const uint64_t own_tokens = tracker_->hasher().block_size();
  for (BlockMatch& match : matches->entries()) {
    const uint64_t tokens = block_tokens_[static_cast<size_t>(match.owner)].load(std::memory_order_relaxed);
    if (tokens == 0) continue;
    for (uint32_t& blocks : match.blocks) {
      const uint64_t held = std::min<uint64_t>(blocks, usable_blocks) * own_tokens;
      blocks = static_cast<uint32_t>((held - held % tokens) / own_tokens);
    }
  }
}

void BlockOwners::FindMatches(const RoutingKey& key, BlockMatches* matches) {
  thread_local uint64_t asked = 0;
  if (key.dry_run || asked++ % BlockRouting::kMatchesPerTiming != 0) {
    return tracker_->Match(key.blocks, matches);
  }
  const auto begun = std::chrono::steady_clock::now();
  tracker_->Match(key.blocks, matches);
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begun;
  const auto nanos = static_cast<uint64_t>(taken.count());
  const auto& bounds = BlockRouting::kMatchBounds;
  const auto bucket = std::lower_bound(bounds.begin(), bounds.end(), nanos) - bounds.begin();
  match_times_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  match_nanos_.fetch_add(nanos, std::memory_order_relaxed);
}

std::optional<WorkerSlot> BlockOwners::FindOwner(WorkerId worker) const {
  const std::lock_guard lock(mutex_);
  const auto found = owner_of_.find(static_cast<uint32_t>(worker));
  return found != owner_of_.end() ? std::optional(found->second) : std::nullopt;
}

void BlockOwners::Forget(WorkerId worker) {
  const std::optional<WorkerSlot> owner = FindOwner(worker);
  if (owner) tracker_->Evict(*owner, 0);
}

void BlockOwners::SetCacheSize(WorkerId worker, const CacheSize& size) {
  const std::optional<WorkerSlot> owner = FindOwner(worker);
  // If it leaves in between and another worker gets its owner id, that one has the wrong size until its
  // own poll.
  if (!owner) return;
  if (size.bytes != 0) tracker_->SetCapacityOf(*owner, std::max<uint64_t>(1, size.bytes / block_bytes()));
  if (block_tokens_ == nullptr || size.block_tokens == 0) return;
  std::atomic<uint32_t>& tokens = block_tokens_[static_cast<size_t>(*owner)];
  const uint32_t before = tokens.exchange(size.block_tokens, std::memory_order_relaxed);
  // An engine has one size for life: this is another one, and its cache is new.
  if (before != 0 && before != size.block_tokens) tracker_->Evict(*owner, 0);
}

size_t BlockOwners::ResponseBlocks(double bytes_per_token) const {
  const double bytes = output_tokens_.value() * bytes_per_token;
  return static_cast<size_t>(std::lround(bytes / static_cast<double>(block_bytes())));
}

uint64_t BlockOwners::Remember(WorkerSlot owner, const RoutingKey& key) {
  const size_t response = ResponseBlocks(key.bytes_per_token);
  if (response == 0) return tracker_->RecordOpen(owner, key.blocks);
  thread_local std::vector<BlockHash> blocks;
  blocks.assign(key.blocks.begin(), key.blocks.end());
  for (size_t i = 0; i < response; ++i) blocks.push_back(std::max<BlockHash>(nameless_.Next(), 1));
  return tracker_->RecordOpen(owner, blocks);
}

void BlockOwners::Settle(const Decision& decision, const Outcome& outcome) {
  if (outcome.end == Outcome::End::kFinished && outcome.output_tokens) {
    output_tokens_.Learn(static_cast<double>(std::min(*outcome.output_tokens, kMostOutputTokens)));
  }
  if (ReachedWorker(outcome.end)) {
    tracker_->Confirm(decision.claim);
  } else if (decision.claim != 0) {
    tracker_->Withdraw(decision.claim);
  }
}

void BlockOwners::RecordFor(WorkerId worker, std::span<const BlockHash> blocks) {
  const std::optional<WorkerSlot> owner = FindOwner(worker);
  // If it leaves in between and another worker gets its owner id, that one is believed to hold blocks
  // that it does not.
  if (owner) tracker_->Record(*owner, blocks);
}

Decision BlockOwners::DecisionFor(
    uint32_t position, Reason reason, uint32_t matched, const RoutingKey& key, const FleetView& fleet) {
  return {
      .position = position,
      .worker = fleet.worker(position).id,
      .reason = reason,
      .unit = MatchUnit::kBlocks,
      .matched = std::min<uint64_t>(matched, key.usable_blocks),
      .total = key.blocks.size()};
}

void BlockOwners::Explain(
    const FleetView& fleet, const Plan& plan, const BlockMatches& matches, Explanation* explanation) {
  for (size_t i = 0; i < explanation->candidates.size() && i < fleet.eligible().size(); ++i) {
    const BlockMatch* const held = matches.Find(plan.known[fleet.eligible()[i]].owner);
    explanation->candidates[i].matched = held != nullptr ? held->longest() : 0;
  }
}

void BlockOwners::Count(const Decision& decision) {
  prompt_blocks_.fetch_add(decision.total, std::memory_order_relaxed);
  matched_blocks_.fetch_add(decision.matched, std::memory_order_relaxed);
}

BlockRouting BlockOwners::Routing(const void* policy, const FleetView& fleet) const {
  BlockRouting routing{.tracker = tracker_.get()};
  if (const Plan* plan = Find(policy, fleet); plan != nullptr) {
    for (const Plan::Known& known : plan->known) {
      routing.owners.push_back(known.owner);
      routing.worker_blocks.push_back(tracker_->BlockCount(known.owner));
      routing.worker_capacity.push_back(tracker_->CapacityOf(known.owner));
      const uint32_t told =
          block_tokens_ == nullptr
              ? 0
              : block_tokens_[static_cast<size_t>(known.owner)].load(std::memory_order_relaxed);
      routing.worker_block_tokens.push_back(told != 0 ? told : tracker_->hasher().block_size());
    }
  }
  routing.prompt_blocks = prompt_blocks_.load(std::memory_order_relaxed);
  routing.matched_blocks = matched_blocks_.load(std::memory_order_relaxed);
  for (size_t i = 0; i < match_times_.size(); ++i) {
    routing.match_times[i] = match_times_[i].load(std::memory_order_relaxed);
  }
  routing.match_nanos = match_nanos_.load(std::memory_order_relaxed);
  return routing;
}

WorkerSlot BlockOwners::Enter() {
  for (;;) {
    const StatusOr<WorkerSlot> owner = tracker_->AddWorker();
    if (owner.ok()) {
      if (block_tokens_ != nullptr) block_tokens_[static_cast<size_t>(*owner)] = 0;
      return *owner;
    }
    // A fleet has at most kMaxWorkers, so only workers that left are in the way, and a match under way
    // that may still see them.
    std::this_thread::yield();
  }
}

}  // namespace vllm_router
