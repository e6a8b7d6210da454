#include "events/trtllm_receiver.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/time_units.h"
#include "events/cache_audit.h"
#include "events/event_applier.h"
#include "events/event_counts.h"
#include "events/source_state.h"

namespace vllm_router {
namespace {

constexpr size_t kKeptEventTokens = size_t{256} * 1024;  // room of a batch that is kept for the next one

constexpr WorkerTrust::Texts kTexts = {
    .partial =
        "events before the router's start, during an outage or taken by another client are missing, so "
        "what was sent to it counts too",
    .silent =
        "Start trtllm-serve with kv_cache_config: {enable_block_reuse: true, event_buffer_max_size: 2048}"};

}  // namespace

// One rank of an engine.
class TrtllmReceiver::Rank {
 public:
  Rank(ReportedBlocks* blocks, KvSource source)
      : source_(std::move(source)),
        index_block_size_(blocks->hasher().block_size()),
        applier_(
            blocks, source_.worker,
            {.model = source_.model, .counts_copies = false, .max_blocks = kMaxBlocks}) {}

  const KvSource& source() const { return source_; }
  bool seen() const { return seen_; }
  bool was_useful() const { return applier_.figures().stored_blocks != 0; }

  // `response`: a number that each has.
  void Take(TrtllmEvent* event, uint64_t response, int64_t now_ns, Result* result) {
    if (response == response_ && *event->number < next_) {
      ++out_of_order_;
      counts_.AddUnusable(1);
      return;
    }
    Follow(*event->number, result);
    response_ = response;
    counts_.AddDecoded(event->batch, 1);
    ++received_;
    if (event->kind != TrtllmEvent::Kind::kNone && IsOfWidestLayers(*event)) {
      if (event->kind == TrtllmEvent::Kind::kCreated) gpu_blocks_ = event->gpu_blocks;
      if (event->kind == TrtllmEvent::Kind::kStored) LearnBlockSize(event);
      if (event->kind == TrtllmEvent::Kind::kRemoved) RemoveFromAllTiers(&event->batch);
      for (const KvEvent& each : event->batch.events) has_host_ = has_host_ || each.medium == KvMedium::kHost;
      if (!event->batch.events.empty()) applier_.Apply(event->batch, now_ns);
      ++applied_;
    }
    counts_.Check(applier_);
  }

  void Restart(IncarnationCause cause, bool complete) {
    Forget();
    ++incarnation_;
    ++incarnations_[static_cast<size_t>(cause)];
    complete_ = complete;
    window_.reset();
    gpu_blocks_ = 0;
    corrections_ = 0;
    counts_.Restart();
    ++gaps_;
  }

  void Lose() {
    complete_ = false;
    ++gaps_;
  }

  void ExpectRestart() { may_have_restarted_ = seen_; }

  void Audit(uint64_t reported, int64_t now_ns) {
    if (!audit_.IsDue(now_ns)) return;
    usable_blocks_ = gpu_blocks_ != 0 ? gpu_blocks_ : reported;
    if (audit_.Check(applier_.known_gpu_blocks(), usable_blocks_, gaps_, now_ns))
      Restart(IncarnationCause::kAudit, false);
  }

  KvTrust trust(bool is_gone) const {
    if (!counts_.usable()) return KvTrust::kMismatch;
    if (!seen_) return KvTrust::kWaiting;
    const KvTrust trust = audit_.Limit(complete_ ? KvTrust::kExact : KvTrust::kPartial, gaps_);
    return is_gone && IsComplete(trust) ? KvTrust::kPartial : trust;
  }

  void NoteTrust(KvTrust trust, int64_t now_ns) {
    if (std::exchange(last_trust_, trust) != trust) trust_since_ns_ = now_ns;
  }

  KvSourceStatus Status(int64_t now_ns) const {
    KvSourceStatus status{
        .source = source_,
        .trust = last_trust_,
        .trust_seconds =
            trust_since_ns_ == 0 ? 0 : static_cast<double>(now_ns - trust_since_ns_) / kNanosPerSecond,
        .received_batches = received_,
        .applied_batches = applied_,
        .lost_batches = lost_,
        .next_number = next_,
        .incarnation = incarnation_,
        .block_size = block_size_,
        .coverage = usable_blocks_ == 0 ? 0
                                        : static_cast<double>(applier_.known_gpu_blocks()) /
                                              static_cast<double>(usable_blocks_)};
    for (size_t cause = 0; cause < incarnations_.size(); ++cause)
      AddCount(
          &status.incarnations, IncarnationCauseName(static_cast<IncarnationCause>(cause)),
          incarnations_[cause]);
    AddCount(&status.dropped, "duplicate", out_of_order_);
    AddCount(&status.dropped, "partial_block", partial_blocks_);
    AddCount(&status.dropped, "other_window", other_window_);
    counts_.AddTo(applier_, &status);
    status.unknown_removed_blocks -= std::min(status.unknown_removed_blocks, removed_twice_);
    return status;
  }

 private:
  void Follow(uint64_t number, Result* result) {
    const bool may_have_restarted = std::exchange(may_have_restarted_, false);
    if (!std::exchange(seen_, true)) {
      complete_ = number == 0;
    } else if (number < next_ || number - next_ > kMaxLost || (number > next_ && may_have_restarted)) {
      const bool jumps = number < next_ || number - next_ > kMaxLost;
      Restart(jumps ? IncarnationCause::kSequence : IncarnationCause::kEvidence, number == 0);
      result->restarted = true;
    } else if (number > next_) {
      lost_ += number - next_;
      result->lost += number - next_;
      complete_ = false;
      ++gaps_;
    }
    next_ = number + 1;
  }

  void Forget() {
    applier_.NewIncarnation();
    block_size_ = 0;
    has_host_ = false;
  }

  // What is known belongs to something else, and is dropped. False: that has happened too often.
  bool Correct() {
    if (applier_.engine_block_size() == 0) return true;
    if (corrections_ == kMaxCorrections) return false;
    ++corrections_;
    Forget();
    return true;
  }

  bool IsOfWidestLayers(const TrtllmEvent& event) {
    if (!window_ || event.window > *window_) {
      if (!window_ || Correct()) window_ = event.window;
    }
    if (event.window != *window_) ++other_window_;
    return event.window == *window_;
  }

  void LearnBlockSize(TrtllmEvent* event) {
    const bool is_certain = event->full_blocks + event->partial_blocks > 1;
    const bool fits = event->block_size % index_block_size_ == 0;
    partial_blocks_ += event->partial_blocks;
    if (event->block_size == block_size_) return;
    if (event->block_size < block_size_ || (!is_certain && !fits)) {
      partial_blocks_ += event->full_blocks;
      event->batch.events.clear();
    } else if (Correct()) {
      block_size_ = event->block_size;
    }
  }

  // The engine drops blocks wherever they are.
  void RemoveFromAllTiers(KvBatch* batch) {
    if (!has_host_) return;
    KvEvent removed = batch->events.front();
    removed.medium = KvMedium::kHost;
    batch->events.push_back(removed);
    removed_twice_ += removed.hash_count;
  }

  const KvSource source_;
  const uint32_t index_block_size_;
  EventApplier applier_;
  EventCounts counts_;
  CacheAudit audit_;

  // Of the incarnation.
  bool seen_ = false;
  bool complete_ = false;
  bool may_have_restarted_ = false;
  uint64_t next_ = 0;
  std::optional<int64_t> window_;  // the largest
  uint32_t block_size_ = 0;
  bool has_host_ = false;  // a block was in host memory
  int corrections_ = 0;
  uint64_t gpu_blocks_ = 0;  // as the engine says; 0: it has not

  uint64_t response_ = 0;  // of the last event
  uint64_t gaps_ = 0;
  uint64_t usable_blocks_ = 0;  // at the last audit
  uint32_t incarnation_ = 0;
  uint64_t received_ = 0;
  uint64_t applied_ = 0;
  uint64_t lost_ = 0;
  uint64_t out_of_order_ = 0;
  uint64_t partial_blocks_ = 0;
  uint64_t other_window_ = 0;
  uint64_t removed_twice_ = 0;  // blocks of events that were applied to two tiers
  std::array<uint64_t, kIncarnationCauseCount> incarnations_{};
  KvTrust last_trust_ = KvTrust::kWaiting;
  int64_t trust_since_ns_ = 0;
};

TrtllmReceiver::TrtllmReceiver(ReportedBlocks* blocks) : blocks_(*blocks) {}

TrtllmReceiver::~TrtllmReceiver() {
  for (const auto& [worker, trust] : workers_) trust.Leave();
}

void TrtllmReceiver::SetSources(const std::vector<KvSource>& sources, int64_t now_ns) {
  std::map<std::string, std::vector<KvSource>, std::less<>> told;
  for (const KvSource& source : sources) {
    told[source.endpoint].push_back(source);
    workers_.try_emplace(
        source.worker, WorkerTrust(&blocks_, &trust_log_, source.worker, source.url, kTexts));
  }
  std::erase_if(workers_, [&sources](const auto& entry) {
    const bool leaves = std::ranges::find(sources, entry.first, &KvSource::worker) == sources.end();
    if (leaves) entry.second.Leave();
    return leaves;
  });
  std::erase_if(endpoints_, [&told](const auto& entry) { return !told.contains(entry.first); });
  for (auto& [name, ranks] : told) {
    Endpoint& endpoint = endpoints_[name];
    if (endpoint.told == ranks) continue;
    // Those of a worker that has left, or whose model is another one.
    std::erase_if(endpoint.ranks, [&ranks = ranks](const auto& entry) {
      KvSource source = entry.second->source();
      return std::ranges::none_of(ranks, [&source](const KvSource& each) {
        if (each.any_rank) source.rank = each.rank;
        return each == source;
      });
    });
    endpoint.told = std::move(ranks);
    for (const KvSource& source : endpoint.told) FindRank(&endpoint, source.rank);
  }
  SetTrusts(now_ns);
}

TrtllmReceiver::Rank* TrtllmReceiver::FindRank(Endpoint* endpoint, uint32_t number) {
  const auto found = endpoint->ranks.find(number);
  if (found != endpoint->ranks.end()) return found->second.get();
  const auto told = std::ranges::find_if(
      endpoint->told, [number](const KvSource& source) { return source.any_rank || source.rank == number; });
  if (told == endpoint->told.end() || endpoint->ranks.size() == kMaxRanks) return nullptr;
  KvSource source = *told;
  source.rank = number;
  return endpoint->ranks.try_emplace(number, std::make_unique<Rank>(&blocks_, std::move(source)))
      .first->second.get();
}

TrtllmReceiver::Result TrtllmReceiver::Take(
    std::string_view name, std::string_view response, int64_t now_ns) {
  Result result;
  const auto found = endpoints_.find(name);
  if (found == endpoints_.end()) return result;
  Endpoint& endpoint = found->second;
  if (!reader_.Open(response)) {
    ++endpoint.malformed;
    result.malformed = true;
    Miss(name, now_ns);
    return result;
  }
  if (!std::exchange(endpoint.connected, true) && std::exchange(endpoint.ever_connected, true))
    ++endpoint.reconnects;
  endpoint.missing_since_ns = 0;
  ++responses_;
  while (reader_.Next(&event_)) {
    ++result.events;
    if (!event_.number) {
      ++endpoint.unnumbered;
      continue;
    }
    Rank* const rank = FindRank(&endpoint, event_.rank);
    if (rank == nullptr) {
      ++endpoint.wrong_rank;
      continue;
    }
    rank->Take(&event_, responses_, now_ns, &result);
    workers_.at(rank->source().worker).OnPublished();
  }
  if (event_.batch.tokens.capacity() > kKeptEventTokens) event_ = {};
  SetTrusts(now_ns);
  return result;
}

void TrtllmReceiver::Lose(std::string_view name, int64_t now_ns) {
  const auto found = endpoints_.find(name);
  if (found == endpoints_.end()) return;
  for (const auto& [number, rank] : found->second.ranks) rank->Lose();
  SetTrusts(now_ns);
}

void TrtllmReceiver::Miss(std::string_view name, int64_t now_ns) {
  const auto found = endpoints_.find(name);
  if (found == endpoints_.end()) return;
  found->second.connected = false;
  if (found->second.missing_since_ns == 0) found->second.missing_since_ns = now_ns;
}

void TrtllmReceiver::ReportOutage(std::string_view name) {
  const auto found = endpoints_.find(name);
  if (found == endpoints_.end()) return;
  for (const auto& [number, rank] : found->second.ranks) rank->ExpectRestart();
}

void TrtllmReceiver::Resync(WorkerId worker, int64_t now_ns) {
  for (auto& [name, endpoint] : endpoints_) {
    for (const auto& [number, rank] : endpoint.ranks) {
      if (rank->source().worker == worker) rank->Restart(IncarnationCause::kReset, false);
    }
  }
  SetTrusts(now_ns);
}

void TrtllmReceiver::Watch(int64_t now_ns) {
  trust_log_.Watch(now_ns);
  for (auto& [worker, trust] : workers_) trust.Watch(now_ns);
  for (auto& [name, endpoint] : endpoints_) {
    for (const auto& [number, rank] : endpoint.ranks)
      rank->Audit(blocks_.GpuBlocksOf(rank->source().worker, number), now_ns);
  }
  SetTrusts(now_ns);
}

bool TrtllmReceiver::IsGone(const Endpoint& endpoint, int64_t now_ns) const {
  return endpoint.missing_since_ns != 0 && now_ns - endpoint.missing_since_ns >= kGoneNanos;
}

void TrtllmReceiver::SetTrusts(int64_t now_ns) {
  for (auto& [name, endpoint] : endpoints_) {
    const bool is_gone = IsGone(endpoint, now_ns);
    const bool any_seen =
        std::ranges::any_of(endpoint.ranks, [](const auto& entry) { return entry.second->seen(); });
    for (const auto& [number, rank] : endpoint.ranks) {
      const KvTrust trust = rank->trust(is_gone);
      rank->NoteTrust(trust, now_ns);
      // Ranks that have stored nothing say nothing.
      if (any_seen && rank->source().any_rank && !rank->seen()) continue;
      workers_.at(rank->source().worker).Add(trust, rank->was_useful());
    }
  }
  for (auto& [worker, trust] : workers_) trust.Decide(now_ns);
}

std::vector<KvSourceStatus> TrtllmReceiver::Report(int64_t now_ns) const {
  std::vector<KvSourceStatus> report;
  for (const auto& [name, endpoint] : endpoints_) {
    for (const auto& [number, rank] : endpoint.ranks) {
      KvSourceStatus status = rank->Status(now_ns);
      status.connected = endpoint.connected;
      status.reconnects = endpoint.reconnects;
      if (number == endpoint.ranks.begin()->first) {
        AddCount(&status.dropped, "malformed_batch", endpoint.malformed);
        AddCount(&status.dropped, "wrong_rank", endpoint.wrong_rank);
        AddCount(&status.dropped, "unnumbered", endpoint.unnumbered);
      }
      const KvTrust routed = blocks_.TrustOf(status.source.worker);
      if (routed == KvTrust::kSilent || routed == KvTrust::kWaiting) status.trust = routed;
      report.push_back(std::move(status));
    }
  }
  return report;
}

}  // namespace vllm_router
