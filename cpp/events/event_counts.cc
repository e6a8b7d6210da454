#include "events/event_counts.h"

namespace vllm_router {

void EventCounts::AddDecoded(const KvBatch& batch, uint64_t events) {
  events_ += events;
  for (size_t drop = 0; drop < decoder_dropped_.size(); ++drop) decoder_dropped_[drop] += batch.dropped[drop];
}

void EventCounts::Check(const EventApplier& applier) {
  const EventApplier::Figures& figures = applier.figures();
  all_unusable_ = unusable_;
  for (const uint64_t count : decoder_dropped_) all_unusable_ += count;
  for (const KvEventDrop drop :
       {KvEventDrop::kUnknownMedium, KvEventDrop::kBlockSize, KvEventDrop::kShape, KvEventDrop::kNamespace,
        KvEventDrop::kOrphanLimit, KvEventDrop::kFull, KvEventDrop::kUnknownWorker})
    all_unusable_ += figures.dropped[static_cast<size_t>(drop)];
  is_useless_ = figures.stored_blocks == 0 && all_unusable_ > 0;
  if (events_ < kCheckedEvents) return;
  is_mismatch_ = 2 * (all_unusable_ - checked_unusable_) > events_;
  checked_unusable_ = all_unusable_;
  events_ = 0;
}

void EventCounts::Restart() {
  is_mismatch_ = false;
  events_ = 0;
  checked_unusable_ = all_unusable_;
}

void EventCounts::AddTo(const EventApplier& applier, KvSourceStatus* status) const {
  const EventApplier::Figures& figures = applier.figures();
  status->stored_blocks = figures.stored_blocks;
  status->removed_blocks = figures.removed_blocks;
  status->unknown_removed_blocks = figures.unknown_removed;
  status->blocks = applier.TierCounts();
  status->orphan_blocks = applier.orphan_blocks();
  status->bytes = applier.bytes();
  for (size_t drop = 0; drop < decoder_dropped_.size(); ++drop)
    AddCount(&status->dropped, KvDropName(static_cast<KvDrop>(drop)), decoder_dropped_[drop]);
  for (size_t drop = 0; drop < figures.dropped.size(); ++drop)
    AddCount(&status->dropped, KvEventDropName(static_cast<KvEventDrop>(drop)), figures.dropped[drop]);
}

}  // namespace vllm_router
