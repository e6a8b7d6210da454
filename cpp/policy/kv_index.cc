#include "policy/kv_index.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "hashing/hash.h"
#include "policy/membership.h"

namespace vllm_router {
namespace {

constexpr size_t kSweepRuns = 64;  // a slice of some 20 us
// A limit, so that one worker that reports nonsense, or one client that wants huge outputs, does not
// fill the modelled caches.
constexpr uint64_t kMostOutputTokens = 32'768;
// What a decision calls new and an engine may hold all the same: the last block, and parts of a block of
// its own size.
constexpr uint64_t kDoubtfulBlocks = 8;
// Where no server rotates predictions: half of --kv-predict-ttl-secs at its default, and as long as there.
constexpr int64_t kRotateNanos = 150'000'000;
constexpr int64_t kRepeatNanos = 60'000'000'000;
// Of a router that hears no peers: the strides of a prompt that name its assumed holder, and the share of the
// prompt that this worker is taken to hold.
constexpr size_t kHolderStrides = 3;
constexpr double kHolderShare = 0.9;
constexpr double kBytesPerTokenId = 4;

// Blocks that the worker computes and should publish; a lower bound.
uint64_t NewBlocks(const Decision& decision) {
  const uint64_t held = decision.matched + kDoubtfulBlocks;
  return decision.total > held ? decision.total - held : 0;
}

}  // namespace

KvIndex::KvIndex(const KvIndexOptions& options)
    : tracker_(std::make_unique<BlockCacheTracker>(options.tracker)),
      reported_(tracker_->hasher()),
      prefixes_(options.prefixes ? std::make_unique<PrefixTable>(*options.prefixes) : nullptr),
      coarse_(
          options.coarse_stride_blocks != 0
              ? std::make_unique<CoarseIndex>(CoarseIndexOptions{
                    .stride_blocks = options.coarse_stride_blocks, .tracker = options.tracker})
              : nullptr),
      block_tokens_(
          options.worker_block_sizes ? std::make_unique<std::atomic<uint32_t>[]>(kMaxWorkers) : nullptr) {}

std::shared_ptr<const FleetPlan> KvIndex::MakePlan(
    std::shared_ptr<const FleetPlan> inner, const FleetView& next) {
  const Plan* last = FindPlan<Plan>(next, this);
  auto plan = std::make_shared<Plan>(this, std::move(inner), next.membership_version());
  if (last != nullptr && last->membership == next.membership_version()) {
    plan->known = last->known;
    plan->weights = last->weights;
    plan->equal_weights = last->equal_weights;
    plan->position_of = last->position_of;
    plan->url_hashes = last->url_hashes;
    return plan;
  }
  std::vector<Plan::Known> gone = last != nullptr ? last->known : std::vector<Plan::Known>();
  plan->known = CarryOver(&gone, next, [this](const FleetView::Member& member) {
    return Plan::Known{member.worker->id, Enter()};
  });
  plan->position_of.assign(kMaxWorkers, kNowhere);
  for (size_t position = 0; position < plan->known.size(); ++position) {
    plan->position_of[static_cast<size_t>(plan->known[position].slot)] = static_cast<uint32_t>(position);
    const Worker& worker = next.worker(static_cast<uint32_t>(position));
    plan->weights.push_back(static_cast<double>(worker.weight) / kWeightOne);
    plan->equal_weights &= plan->weights.back() == plan->weights.front();
    if (coarse_ != nullptr) plan->url_hashes.push_back(Xxh3(worker.url.url));
  }
  // Before a slot may be given to another worker.
  reported_.SetWorkers(plan->known);
  if (prefixes_ != nullptr) {
    std::vector<WorkerId> workers;
    for (const Plan::Known& known : plan->known) workers.push_back(known.worker);
    prefixes_->SetWorkers(workers);
  }
  for (const Plan::Known& known : gone) {
    predicted_.Remove(known.slot);
    if (coarse_ != nullptr) coarse_->Remove(known.slot);
    tracker_->RemoveWorker(known.slot);
  }
  while (tracker_->Sweep(kSweepRuns)) {
  }
  const MutexLock lock(mutex_);
  slot_of_.clear();
  for (const Plan::Known& known : plan->known) slot_of_[static_cast<uint32_t>(known.worker)] = known.slot;
  return plan;
}

const KvIndex::Plan* KvIndex::PlanOf(const FleetView& fleet) const {
  const Plan* plan = FindPlan<Plan>(fleet, this);
  return plan != nullptr && plan->membership == fleet.membership_version() ? plan : nullptr;
}

void KvIndex::Match(const RoutingKey& key, const Plan& plan, BlockMatches* matches) {
  FindMatches(key, plan, matches);
  if (block_tokens_ != nullptr) RoundDown(key.usable_blocks, matches);
}

void KvIndex::Peek(const RoutingKey& key, const Plan& plan, BlockMatches* matches) {
  MatchAll(key, plan, {.counts = false, .assumes = false}, matches);
  if (block_tokens_ != nullptr) RoundDown(key.usable_blocks, matches);
}

void KvIndex::RoundDown(uint64_t usable_blocks, BlockMatches* matches) const {
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

void KvIndex::MatchPrefix(const RoutingKey& key, bool counts, BlockMatches* matches) {
  thread_local std::vector<PrefixTable::Held> own_held;
  std::vector<PrefixTable::Held>& held = own_held;
  const int64_t now = SteadyClock().NowNanos();
  if (!counts) {
    prefixes_->Peek(*key.prefix_digest, now, &held);
  } else {
    prefixes_->Find(*key.prefix_digest, now, &held);
  }
  held.insert(held.end(), key.shared_holders.begin(), key.shared_holders.end());
  const double tokens_per_block = TokensPerBlock(key);
  for (const PrefixTable::Held& holder : held) {
    const std::optional<WorkerSlot> slot = FindSlot(holder.worker);
    if (!slot || IsComplete(reported_.trust(*slot))) continue;
    const auto blocks =
        static_cast<uint32_t>(std::min<double>(holder.tokens, key.prompt_tokens) / tokens_per_block);
    if (blocks != 0) matches->Raise(*slot, {holder.on_gpu ? blocks : 0, holder.on_gpu ? blocks : 0, blocks});
  }
}

// Of the highest hash of a worker's URL with the prompt's beginning: Thaler and Ravishankar, "Using name-based
// mappings to increase hit rates" (1998). All routers of a fleet find the same worker.
void KvIndex::AssumeHolder(const RoutingKey& key, const Plan& plan, BlockMatches* matches) const {
  const size_t first = std::min<size_t>(kHolderStrides * coarse_->stride_blocks(), key.blocks.size());
  size_t holder = 0;
  uint64_t highest = 0;
  if (plan.known.empty()) return;
  for (size_t position = 0; position < plan.url_hashes.size(); ++position) {
    const uint64_t pair[] = {plan.url_hashes[position], key.blocks[first - 1]};
    const uint64_t hash = Xxh3(pair, sizeof(pair));
    if (hash < highest) continue;
    highest = hash;
    holder = position;
  }
  const auto held = static_cast<uint32_t>(kHolderShare * static_cast<double>(key.blocks.size()));
  if (held != 0) matches->Raise(plan.known[holder].slot, {held, held, held});
}

void KvIndex::MatchAll(const RoutingKey& key, const Plan& plan, Looks looks, BlockMatches* matches) {
  tracker_->Match(key.blocks, matches);
  if (coarse_ != nullptr) {
    coarse_->Refine(key.blocks, matches);
    if (looks.assumes && alone()) AssumeHolder(key, plan, matches);
  }
  if (prefixes_ != nullptr && key.prefix_digest) MatchPrefix(key, looks.counts, matches);
  if (!reported_.active()) return;
  if (!key.blocks_are_tokens || !key.blocks_are_reported) {
    std::atomic<uint64_t>& unmatched =
        key.blocks_are_tokens ? prompts_of_other_models_ : prompts_without_ids_;
    if (looks.counts) unmatched.fetch_add(1, std::memory_order_relaxed);
  }
  if (!key.blocks_are_tokens) return;
  reported_.Merge(key.blocks, key.blocks_are_reported, matches);
  if (key.blocks_are_reported) predicted_.Merge(key.blocks, reported_, matches);
}

void KvIndex::FindMatches(const RoutingKey& key, const Plan& plan, BlockMatches* matches) {
  thread_local uint64_t matched = 0;
  if (key.dry_run || matched++ % kMatchesPerTiming != 0)
    return MatchAll(key, plan, {.counts = !key.dry_run}, matches);
  const auto begun = std::chrono::steady_clock::now();
  MatchAll(key, plan, {}, matches);
  const std::chrono::nanoseconds taken = std::chrono::steady_clock::now() - begun;
  const int64_t nanos = taken.count();
  const auto bucket =
      std::lower_bound(kMatchBounds.begin(), kMatchBounds.end(), nanos) - kMatchBounds.begin();
  match_times_[static_cast<size_t>(bucket)].fetch_add(1, std::memory_order_relaxed);
  match_nanos_.fetch_add(static_cast<uint64_t>(nanos), std::memory_order_relaxed);
}

std::optional<WorkerSlot> KvIndex::FindSlot(WorkerId worker) const {
  const MutexLock lock(mutex_);
  const auto found = slot_of_.find(static_cast<uint32_t>(worker));
  return found != slot_of_.end() ? std::optional(found->second) : std::nullopt;
}

void KvIndex::Forget(WorkerId worker) {
  const std::optional<WorkerSlot> slot = FindSlot(worker);
  if (!slot) return;
  tracker_->Evict(*slot, 0);
  if (coarse_ != nullptr) coarse_->Forget(*slot);
  predicted_.Remove(*slot);
  if (prefixes_ != nullptr) prefixes_->RemoveAllOf(worker);
  // An engine tells that its cache was cleared with its next step. Until then its events tell too much.
  if (IsUsable(reported_.trust(*slot))) reported_.SetTrust(worker, KvTrust::kWaiting);
}

void KvIndex::RotateDuePredictions() {
  if (!rotates_itself_.load(std::memory_order_relaxed)) return;
  const int64_t now = SteadyClock().NowNanos();
  int64_t last = rotated_ns_.load(std::memory_order_relaxed);
  if (now - last < kRotateNanos || !rotated_ns_.compare_exchange_strong(last, now)) return;
  predicted_.Rotate(now, kRepeatNanos);
  if (now - last >= 2 * kRotateNanos) predicted_.Rotate(now, kRepeatNanos);  // both halves are old
}

void KvIndex::ForgetPredictions(WorkerId worker) {
  if (const std::optional<WorkerSlot> slot = FindSlot(worker)) predicted_.Remove(*slot);
}

void KvIndex::SetCacheSize(WorkerId worker, const CacheSize& size) {
  const std::optional<WorkerSlot> slot = FindSlot(worker);
  // If it leaves in between and another worker gets its slot, that one has the wrong size until its
  // own poll.
  if (!slot) return;
  if (!size.gpu_blocks.empty()) reported_.SetGpuBlocks(worker, size.gpu_blocks);
  if (size.bytes != 0) {
    const uint64_t blocks = std::max<uint64_t>(1, size.bytes / block_bytes());
    tracker_->SetCapacityOf(*slot, blocks);
    if (coarse_ != nullptr) coarse_->SetCapacityOf(*slot, blocks);
  }
  if (block_tokens_ == nullptr || size.block_tokens == 0) return;
  std::atomic<uint32_t>& tokens = block_tokens_[static_cast<size_t>(*slot)];
  const uint32_t before = tokens.exchange(size.block_tokens, std::memory_order_relaxed);
  // An engine has one size for life: this is another one, and its cache is new.
  if (before == 0 || before == size.block_tokens) return;
  tracker_->Evict(*slot, 0);
  if (coarse_ != nullptr) coarse_->Forget(*slot);
}

size_t KvIndex::ResponseBlocks(double bytes_per_token) const {
  const double bytes = output_tokens_.value() * bytes_per_token;
  return static_cast<size_t>(std::lround(bytes / static_cast<double>(block_bytes())));
}

void KvIndex::Remember(WorkerSlot slot, const RoutingKey& key, Decision* decision) {
  if (key.blocks_are_tokens && reported_.trust(slot) != KvTrust::kOff) {
    RotateDuePredictions();
    decision->prediction = predicted_.Add(slot, key.blocks);
  }
  if (coarse_ != nullptr) Share(slot, key, decision);
  decision->claim = tracker_->RecordOpen(slot, key.blocks, ResponseBlocks(key.bytes_per_token));
}

void KvIndex::Settle(const Decision& decision, const Outcome& outcome) {
  EndWait(decision);
  predictions_.Count(decision, outcome, tracker_->hasher().block_size());
  if (outcome.end == Outcome::End::kFinished && outcome.output_tokens) {
    output_tokens_.Learn(static_cast<double>(std::min(*outcome.output_tokens, kMostOutputTokens)));
  }
  // What did not reach its worker will not be published.
  const bool computed = ComputedPrompt(outcome);
  if (reported_.active() && !computed) reported_.Forgive(decision.worker, NewBlocks(decision));
  if (computed) {
    tracker_->Confirm(decision.claim);
    if (coarse_ != nullptr) coarse_->Confirm(decision.coarse_claim);
  } else {
    if (decision.claim != 0) tracker_->Withdraw(decision.claim);
    if (decision.coarse_claim != 0) coarse_->Withdraw(decision.coarse_claim);
  }
}

void KvIndex::Clear() {
  tracker_->Clear();
  if (coarse_ != nullptr) coarse_->Clear();
}

// Peers are told as the decision is made: a burst of requests with one prompt may come to all routers at once.
// What a worker's events tell is not told again, since peers hear them too.
void KvIndex::Share(WorkerSlot slot, const RoutingKey& key, Decision* decision) {
  thread_local std::vector<BlockHash> strides;
  CoarseIndex::StridesOf(key.blocks, coarse_->stride_blocks(), &strides);
  const bool events_tell = key.blocks_are_tokens && IsComplete(reported_.trust(slot));
  if (!strides.empty() && !events_tell) outgoing_.Add(decision->worker, key.prompt_tokens, strides);
  const size_t response = ResponseStrides(key.blocks.size(), key.bytes_per_token, strides.size());
  decision->coarse_claim = coarse_->RecordOpen(slot, strides, response);
}

void KvIndex::RecordPeerDecision(
    WorkerId worker, uint32_t prompt_tokens, std::span<const BlockHash> strides) {
  if (coarse_ == nullptr) return;
  const std::optional<WorkerSlot> slot = FindSlot(worker);
  if (!slot) return;
  // Strides of text are as many bytes as those of tokens, whatever a peer's prompt was of. Beyond its strides a prompt
  // has less than one more: a peer may say anything.
  const size_t least = strides.size() * coarse_->stride_blocks();
  const size_t blocks = std::clamp<size_t>(
      prompt_tokens / tracker_->hasher().block_size(), least, least + coarse_->stride_blocks() - 1);
  coarse_->Record(*slot, strides, ResponseStrides(blocks, kBytesPerTokenId, strides.size()));
}

bool KvIndex::SaveStrides(const FleetView& fleet, ImageWriter* image) {
  const Plan* const plan = PlanOf(fleet);
  if (coarse_ == nullptr || plan == nullptr) return false;
  const size_t slots = coarse_->saved_slots();
  std::vector<const Worker*> workers(slots, nullptr);
  for (size_t slot = 0; slot < slots; ++slot) {
    const std::optional<WorkerSlot> refined = coarse_->RefinedSlot(slot);
    const uint32_t position = refined ? plan->PositionOf(*refined) : kNowhere;
    if (position != kNowhere) workers[slot] = &fleet.worker(position);
  }
  image->Number(uint64_t{slots});
  for (const Worker* const worker : workers) {
    image->Number(uint8_t{worker != nullptr});
    if (worker == nullptr) continue;
    image->Number(worker->incarnation.load(std::memory_order_relaxed));
    image->Text(worker->url.url);
  }
  coarse_->Save(image);
  // A slot that went to another worker meanwhile has that one's strides under the former's name.
  const MutexLock lock(mutex_);
  if (slot_of_.size() != plan->known.size()) return false;
  return std::ranges::all_of(
      plan->known, [this](const Plan::Known& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        const auto found = slot_of_.find(static_cast<uint32_t>(known.worker));
        return found != slot_of_.end() && found->second == known.slot;
      });
}

void KvIndex::AdoptStrides(WorkerId worker, const BlockCacheTracker& saved, WorkerSlot theirs) {
  const std::optional<WorkerSlot> slot = FindSlot(worker);
  if (slot && coarse_ != nullptr) coarse_->Adopt(*slot, saved, theirs);
}

size_t KvIndex::ResponseStrides(size_t prompt_blocks, double bytes_per_token, size_t strides) const {
  const size_t response = ResponseBlocks(bytes_per_token);
  if (response == 0) return 0;
  const size_t stride = coarse_->stride_blocks();
  const size_t all = (prompt_blocks + response + stride / 2) / stride;
  return all - std::min(all, strides);
}

void KvIndex::RecordBlocks(WorkerId worker, std::span<const BlockHash> blocks) {
  const std::optional<WorkerSlot> slot = FindSlot(worker);
  // If it leaves in between and another worker gets its slot, that one is believed to hold blocks
  // that it does not.
  if (!slot) return;
  tracker_->Record(*slot, blocks);
  if (coarse_ == nullptr) return;
  std::vector<BlockHash> strides;
  coarse_->Record(*slot, CoarseIndex::StridesOf(blocks, coarse_->stride_blocks(), &strides));
}

Decision KvIndex::DecisionFor(
    uint32_t position, Reason reason, uint32_t matched, const RoutingKey& key, const FleetView& fleet) {
  return {
      .position = position,
      .worker = fleet.worker(position).id,
      .reason = reason,
      .unit = MatchUnit::kBlocks,
      .blocks_are_tokens = key.blocks_are_tokens,
      .matched = std::min<uint64_t>(matched, key.usable_blocks),
      .total = key.blocks.size()};
}

void KvIndex::Explain(
    const FleetView& fleet, const Plan& plan, const BlockMatches& matches, Explanation* explanation) {
  for (size_t i = 0; i < explanation->candidates.size() && i < fleet.eligible().size(); ++i) {
    const BlockMatch* const held = matches.Find(plan.known[fleet.eligible()[i]].slot);
    explanation->candidates[i].matched = held != nullptr ? held->longest() : 0;
  }
}

void KvIndex::Count(const Decision& decision) {
  prompt_blocks_.fetch_add(decision.total, std::memory_order_relaxed);
  matched_blocks_.fetch_add(decision.matched, std::memory_order_relaxed);
  if (reported_.active()) reported_.Owe(decision.worker, NewBlocks(decision));
}

uint64_t KvIndex::BlockTokensOf(WorkerSlot slot) const {
  const uint32_t told =
      block_tokens_ == nullptr ? 0 : block_tokens_[static_cast<size_t>(slot)].load(std::memory_order_relaxed);
  return told != 0 ? told : tracker_->hasher().block_size();
}

void KvIndex::Report(const FleetView& fleet, StatsWriter* writer) const {
  const BlockCacheTrackerStats stats = tracker_->stats();
  std::vector<uint64_t> blocks;
  std::vector<uint64_t> capacity;
  std::vector<uint64_t> block_tokens;
  if (const Plan* plan = PlanOf(fleet); plan != nullptr) {
    for (const Plan::Known& known : plan->known) {
      blocks.push_back(tracker_->BlockCount(known.slot));
      capacity.push_back(tracker_->CapacityOf(known.slot));
      block_tokens.push_back(BlockTokensOf(known.slot));
    }
  }
  std::array<uint64_t, kMatchBounds.size() + 1> times{};
  for (size_t i = 0; i < times.size(); ++i) times[i] = match_times_[i].load(std::memory_order_relaxed);

  writer->Group("block_index");
  writer->Counter(
      {"prompt_blocks", "prompt_blocks_total", "Blocks of the prompts that a worker was chosen for."},
      prompt_blocks_.load(std::memory_order_relaxed));
  writer->Counter(
      {"matched_blocks", "matched_blocks_total",
       "Of prompt_blocks_total: blocks that the chosen worker was expected to have cached, the share that "
       "caches should save."},
      matched_blocks_.load(std::memory_order_relaxed));
  const StatsWriter::Named unmatched[] = {
      {"no_token_ids", prompts_without_ids()},
      {"other_model", prompts_of_other_models_.load(std::memory_order_relaxed)}};
  writer->NamedCounters(
      {"unmatched_prompts",
       "kv_events_unmatched_prompts_total",
       "Prompts that were not matched with KV events although workers publish them: no_token_ids, or "
       "other_model (an adapter, or a model that no event names).",
       {},
       "cause"},
      unmatched);
  writer->Counter({"recorded_requests", {}, {}}, stats.recorded_requests);
  writer->Counter(
      {"evicted_blocks", "index_evicted_blocks_total",
       "Blocks evicted from the block index because a worker's capacity was reached."},
      stats.evicted_blocks);
  writer->Gauge({"blocks", "index_blocks", "Distinct blocks in the block index."}, stats.index.blocks);
  writer->Gauge({"worker_blocks", {}, {}}, stats.worker_blocks());
  writer->Gauge({"bytes", "index_bytes", "Memory of the block index."}, stats.bytes);
  writer->PerWorker(
      {"workers", "index_worker_blocks",
       "Blocks that the worker is expected to have cached, those of responses included."},
      blocks);
  writer->PerWorker(
      {"max_blocks", "index_worker_max_blocks",
       "Maximum of index_worker_blocks: what the worker's cache holds, else max_blocks_per_worker."},
      capacity);
  writer->PerWorker(
      {"block_sizes", "index_worker_block_tokens",
       "Tokens per block of the worker's cache, to which matches are rounded: block_size, or with auto what "
       "the worker reports, 16 until then."},
      block_tokens);
  writer->Histogram(
      {"match", "index_match_seconds",
       "Time to match a prompt against the block index; one match in 16 is timed."},
      kMatchBounds, times, match_nanos_.load(std::memory_order_relaxed));
  predictions_.Report(writer);
}

WorkerSlot KvIndex::Enter() {
  for (;;) {
    const StatusOr<WorkerSlot> slot = tracker_->AddWorker();
    if (slot.ok()) {
      if (block_tokens_ != nullptr) block_tokens_[static_cast<size_t>(*slot)] = 0;
      if (coarse_ != nullptr) coarse_->Add(*slot);
      return *slot;
    }
    // A fleet has at most kMaxWorkers, so only workers that left are in the way, and a match under way
    // that may still see them.
    std::this_thread::yield();
  }
}

}  // namespace vllm_router
