#include "simulation/live_engine.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace vllm_router {
LiveEngine::LiveEngine(const BatchEngineOptions& options, const Clock& clock)
    : clock_(clock), origin_(clock.NowNanos()), engine_(options) {}

LiveEngine::JobId LiveEngine::Submit(std::vector<Part> parts) {
  ROUTER_CHECK(!parts.empty(), "a job has at least one prompt");
  Job made(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) made[i].part = std::move(parts[i]);

  MutexLock lock(mutex_);
  const Picos now = Advance();
  Job& job = jobs_[++last_job_];
  job = std::move(made);
  for (Running& running : job) {
    const Part& part = running.part;
    running.id = engine_.Submit(
        {.prompt_tokens = part.prompt_tokens,
         .output_tokens = part.output_tokens,
         .blocks = part.blocks,
         .prompt_blocks = part.prompt_blocks,
         .tag = reinterpret_cast<uintptr_t>(&running)},
        now);
  }
  return last_job_;
}

LiveEngine::Progress LiveEngine::ProgressOf(JobId id) {
  MutexLock lock(mutex_);
  const Picos now = Advance();
  const auto found = jobs_.find(id);
  ROUTER_CHECK(found != jobs_.end(), "the job was not submitted, or has left");

  Progress progress{.ended = true, .tokens = std::numeric_limits<size_t>::max()};
  Picos next_token = 0;
  for (const Running& running : found->second) {
    if (running.ended) {
      progress.tokens = std::min<size_t>(progress.tokens, running.part.output_tokens);
      progress.hit_tokens += running.hit;
      continue;
    }
    progress.ended = false;
    progress.tokens = std::min<size_t>(progress.tokens, engine_.TokensAt(running.id, now));
    progress.hit_tokens += engine_.HitTokens(running.id).value_or(0);
    // All decoding requests have their next token at the end of the same step; others have theirs no
    // sooner.
    next_token = std::max(next_token, engine_.NextTokenTime(running.id, now));
  }
  progress.next_token = NanosOf(next_token);
  progress.next_event = NanosOf(engine_.NextEvent());
  return progress;
}

bool LiveEngine::Leave(JobId id) {
  MutexLock lock(mutex_);
  const Picos now = Advance();
  const auto found = jobs_.find(id);
  ROUTER_CHECK(found != jobs_.end(), "a job leaves once");
  Job job = std::move(found->second);
  jobs_.erase(found);

  const Picos before = engine_.NextEvent();
  bool computing = false;
  for (const Running& running : job) {
    if (running.ended) continue;
    computing |= engine_.HitTokens(running.id).has_value();
    engine_.Cancel(running.id, now);
  }
  if (computing) leaving_.push_back({engine_.NextEvent(), std::move(job)});
  return engine_.NextEvent() < before;
}

void LiveEngine::WipeCache() {
  MutexLock lock(mutex_);
  Advance();
  engine_.WipeCache();
}

LiveEngine::State LiveEngine::ReadState() {
  MutexLock lock(mutex_);
  Advance();
  const BlockPool& pool = engine_.pool();
  return {engine_.load(), pool.held(), pool.resident(), pool.evicted()};
}

void LiveEngine::KeepCacheSteps() {
  MutexLock lock(mutex_);
  engine_.LogSteps(&changes_);
}

int64_t LiveEngine::TakeCacheSteps(std::vector<CacheStep>* steps) {
  steps->clear();
  MutexLock lock(mutex_);
  Advance();
  steps->swap(cache_steps_);
  return NanosOf(engine_.NextEvent());
}

void LiveEngine::ForgetCache() {
  MutexLock lock(mutex_);
  Advance();
  engine_.WipeCache();
  engine_.LogSteps(&changes_);
  changes_.clear();
  step_.clear();
  cache_steps_.clear();
}

// The jobs of all changes are still there: the engine has just ended their steps.
void LiveEngine::KeepChanges() {
  using Kind = BatchEngine::CacheChange::Kind;
  const size_t block_tokens = engine_.options().block_tokens;
  uint64_t last_tag = 0;  // of the store that a block directly behind it joins
  size_t next_block = 0;
  for (const BatchEngine::CacheChange& change : changes_) {
    if (change.kind == Kind::kStepEnd) {
      if (!step_.empty()) cache_steps_.push_back(std::exchange(step_, {}));
    } else if (change.kind == Kind::kRemoved) {
      step_.push_back({.kind = CacheEvent::Kind::kRemoved, .blocks = {change.name}});
    } else if (change.kind == Kind::kCleared) {
      step_.push_back({.kind = CacheEvent::Kind::kCleared});
    } else {
      const Part& part = reinterpret_cast<const Running*>(static_cast<uintptr_t>(change.tag))->part;
      if (last_tag != change.tag || next_block != change.block) {
        step_.push_back({.kind = CacheEvent::Kind::kStored});
        if (change.block > 0) step_.back().parent = part.blocks[change.block - 1];
      }
      CacheEvent& event = step_.back();
      event.blocks.push_back(part.blocks[change.block]);
      const auto begin = part.tokens.begin() + static_cast<ptrdiff_t>(change.block * block_tokens);
      event.tokens.insert(event.tokens.end(), begin, begin + static_cast<ptrdiff_t>(block_tokens));
      last_tag = change.tag;
      next_block = change.block + 1;
      continue;
    }
    last_tag = 0;
  }
  changes_.clear();
}

Picos LiveEngine::Advance() {
  const Picos now = (clock_.NowNanos() - origin_) * kPicosPerNano;
  events_.clear();
  engine_.AdvanceTo(now, &events_);
  for (const BatchEngine::Event& event : events_) {
    if (event.kind != BatchEngine::Event::Kind::kFinished) continue;
    auto* const running = reinterpret_cast<Running*>(static_cast<uintptr_t>(event.tag));
    running->ended = true;
    running->hit = event.hit_tokens;
  }
  if (!changes_.empty()) KeepChanges();
  while (!leaving_.empty() && leaving_.front().until <= now) leaving_.pop_front();
  return now;
}

// The first nanosecond that is not before it.
int64_t LiveEngine::NanosOf(Picos time) const {
  return origin_ + time / kPicosPerNano + (time % kPicosPerNano == 0 ? 0 : 1);
}

}  // namespace vllm_router
