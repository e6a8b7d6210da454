#include "simulation/batch_engine.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace vllm_router {
namespace {

constexpr uint32_t kPageTokens = 16;

Picos ToPicos(double value, double picos_per_unit, double speed) {
  return std::llround(value * picos_per_unit / speed);
}

}  // namespace

BatchEngine::BatchEngine(const BatchEngineOptions& options) : options_(options), pool_(options.cache_blocks) {
  ROUTER_CHECK(options.block_tokens > 0, "a block holds at least one token");
  ROUTER_CHECK(options.step_tokens > 0, "a step computes at least one token");
  ROUTER_CHECK(options.max_running > 0, "an engine runs at least one request");
  ReadCoefficients(options.speed);
}

void BatchEngine::ReadCoefficients(double speed) {
  ROUTER_CHECK(speed > 0, "an engine moves");
  const EngineCoefficients& coefficients = options_.coefficients;
  step_ps_ = ToPicos(coefficients.step_ms, 1e9, speed);
  prefill_ps_ = ToPicos(coefficients.prefill_us_per_token, 1e6, speed);
  attention_ps_ = ToPicos(coefficients.attention_ns_per_token2, 1e3, speed);
  decode_ps_ = ToPicos(coefficients.decode_us_per_sequence, 1e6, speed);
  context_ps_ = ToPicos(coefficients.context_ns_per_token, 1e3, speed);
}

void BatchEngine::SetSpeed(double speed, Picos now) {
  ReadCoefficients(speed);
  if (stretch_) BreakOff(now);
}

BatchEngine::RequestId BatchEngine::Submit(const Request& request, Picos now) {
  if (free_.empty()) {
    free_.push_back(static_cast<RequestId>(requests_.size()));
    requests_.emplace_back();
  }
  ROUTER_CHECK(
      !request.is_held || request.output_tokens <= 1, "only a prompt is computed for another engine");
  const RequestId id = free_.back();
  free_.pop_back();
  Running& running = requests_[id];
  running.request = request;
  running.number = submitted_++;
  running.hit = running.done = running.computed = 0;
  running.state = Running::State::kWaiting;
  running.cancelled = false;
  waiting_.push_back(id);
  if (!active_) {
    BeginStep(now);
  } else if (stretch_ && waiting_.size() == 1) {
    BreakOff(now);  // behind others it would wait as they do
  }
  return id;
}

void BatchEngine::Cancel(RequestId id, Picos now) {
  Running& running = requests_[id];
  ROUTER_CHECK(
      running.state != Running::State::kFree && !running.cancelled,
      "a request is cancelled once, before its end");
  ROUTER_CHECK(
      running.state != Running::State::kFetching && running.state != Running::State::kFetched &&
          running.state != Running::State::kHeld,
      "a request is not cancelled while its blocks move");
  if (running.state == Running::State::kWaiting) {
    const auto place = std::find(waiting_.begin(), waiting_.end(), id);
    if (place == waiting_.begin()) blocked_ = false;
    waiting_.erase(place);
    Free(id);
  } else {
    running.cancelled = true;
    ++leaving_;
  }
  if (stretch_) BreakOff(now);
}

void BatchEngine::Fetched(RequestId id, Picos now) {
  Running& running = requests_[id];
  ROUTER_CHECK(
      running.state == Running::State::kFetching, "blocks come once, for a request that fetches them");
  running.state = Running::State::kFetched;
  // The last token's logits are needed, so it is computed again.
  running.done = std::max(running.done, std::max(running.request.prompt_tokens, 1u) - 1);
  fetched_.push_back(id);
  Resume(now);
}

void BatchEngine::ReleaseHeld(RequestId id, Picos now) {
  Running& running = requests_[id];
  ROUTER_CHECK(
      running.state == Running::State::kHeld, "blocks are given back once, after the end of the prompt");
  ReleaseBlocks(running);
  Free(id);
  Resume(now);
}

// Something may be admitted that could not before.
void BatchEngine::Resume(Picos now) {
  if (!active_) {
    BeginStep(now);
  } else if (stretch_) {
    BreakOff(now);
  }
}

void BatchEngine::AdvanceTo(Picos now, std::vector<Event>* events) {
  Tell(events);
  while (active_ && step_end_ <= now) {
    EndStep(events);
    Tell(events);
  }
}

void BatchEngine::Tell(std::vector<Event>* events) {
  events->insert(events->end(), admitted_.begin(), admitted_.end());
  admitted_.clear();
}

std::optional<uint32_t> BatchEngine::HitTokens(RequestId id) const {
  const Running& running = requests_[id];
  if (running.state == Running::State::kWaiting) return std::nullopt;
  return running.hit;
}

uint32_t BatchEngine::TokensAt(RequestId id, Picos now) const {
  const Running& running = requests_[id];
  if (running.state != Running::State::kDecode) return 0;
  const uint64_t over = stretch_ ? StepsOverBy(now) : 0;
  return static_cast<uint32_t>(step_ + over - running.first_step + 1);
}

Picos BatchEngine::NextTokenTime(RequestId id, Picos now) const {
  if (!stretch_ || requests_[id].state != Running::State::kDecode) return NextEvent();
  return EndOf(std::min(StepsOverBy(now) + 1, stretch_steps_));
}

// Called at the end of a step, with no step under way: the next one is composed here.
void BatchEngine::BeginStep(Picos now) {
  chunks_.clear();
  int64_t left = options_.step_tokens;
  if (!options_.prompts_first) left -= static_cast<int64_t>(decode_.size());
  for (const RequestId id : prefill_) {
    if (left <= 0) break;
    TakeChunk(id, &left);
  }
  while (!fetched_.empty() && left > 0 && running_ < options_.max_running) {
    const RequestId id = fetched_.front();
    fetched_.pop_front();
    --fetching_;
    Run(id);
    TakeChunk(id, &left);
  }
  while (!waiting_.empty() && left > 0 && running_ < options_.max_running && !blocked_) {
    const RequestId id = waiting_.front();
    if (!Admit(id)) {
      blocked_ = true;
      break;
    }
    waiting_.pop_front();
    if (requests_[id].request.is_fetched) {
      const Running& running = requests_[id];
      requests_[id].state = Running::State::kFetching;
      ++fetching_;
      admitted_.push_back({Event::Kind::kFetch, id, running.request.tag, running.hit, now});
      continue;
    }
    Run(id);
    TakeChunk(id, &left);
  }
  active_ = !chunks_.empty() || !decode_.empty();
  stretch_ = active_ && chunks_.empty();
  prompts_only_ = options_.prompts_first && !chunks_.empty();
  if (!active_) return;

  step_begin_ = now;
  stretch_steps_ = 1;
  Wide first = Wide{step_ps_};
  if (!prompts_only_) {
    first += Wide{decode_ps_} * static_cast<int64_t>(decode_.size()) + Wide{context_ps_} * contexts_;
  }
  for (const Chunk& chunk : chunks_) {
    // The chunk's tokens attend to all earlier tokens and, on average, to half of the chunk.
    const int64_t twice_context = 2 * int64_t{requests_[chunk.id].done} + chunk.tokens;
    first += Wide{prefill_ps_} * chunk.tokens + Wide{attention_ps_} * chunk.tokens * twice_context / 2;
  }
  first_step_ps_ = static_cast<Picos>(std::min<Wide>(first, kNever));
  growth_ps_ = context_ps_ * static_cast<int64_t>(decode_.size());
  if (stretch_ && options_.skip_decode_steps) stretch_steps_ = decode_.front().step - step_;
  step_end_ = EndOf(stretch_steps_);
}

bool BatchEngine::Admit(RequestId id) {
  Running& running = requests_[id];
  const Request& request = running.request;
  const uint64_t tokens = uint64_t{request.prompt_tokens} + request.output_tokens;
  const uint64_t blocks = (tokens + options_.block_tokens - 1) / options_.block_tokens;
  const uint64_t nameless = blocks > request.blocks.size() ? blocks - request.blocks.size() : 0;
  if (!pool_.Reserve(request.blocks, nameless, &running.reserved)) return false;

  const uint64_t cached =
      std::min<uint64_t>(running.reserved.hit, request.prompt_blocks) * options_.block_tokens;
  const uint32_t page = std::min(kPageTokens, options_.block_tokens);
  const uint32_t kept_back = std::max(options_.min_computed_tokens, 1u);
  const uint32_t most =
      request.prompt_tokens > kept_back ? (request.prompt_tokens - kept_back) / page * page : 0;
  running.hit = static_cast<uint32_t>(std::min<uint64_t>(cached, most));
  running.done = running.hit;
  running.computed = static_cast<uint32_t>(std::min(running.reserved.hit, request.prompt_blocks));
  return true;
}

void BatchEngine::Run(RequestId id) {
  requests_[id].state = Running::State::kPrefill;
  prefill_.push_back(id);
  ++running_;
}

void BatchEngine::TakeChunk(RequestId id, int64_t* left) {
  const Running& running = requests_[id];
  const auto tokens =
      static_cast<uint32_t>(std::min<int64_t>(*left, running.request.prompt_tokens - running.done));
  *left -= tokens;
  chunks_.push_back({id, tokens});
}

void BatchEngine::EndStep(std::vector<Event>* events) {
  const Picos now = step_end_;
  busy_ += now - step_begin_;
  steps_ += stretch_steps_;
  if (!prompts_only_) {
    step_ += stretch_steps_;
    contexts_ += static_cast<int64_t>(decode_.size() * stretch_steps_);
  }
  while (!decode_.empty() && decode_.front().step <= step_) {
    const RequestId id = decode_.front().id;
    std::pop_heap(decode_.begin(), decode_.end());
    decode_.pop_back();
    Running& running = requests_[id];
    contexts_ -= int64_t{running.request.prompt_tokens} + running.request.output_tokens;
    if (running.cancelled) --leaving_;
    if (!running.cancelled) {
      events->push_back({Event::Kind::kFinished, id, running.request.tag, running.hit, now});
    }
    running.done += running.request.output_tokens;
    --running_;
    ReleaseBlocks(running);
    Free(id);
  }
  for (const Chunk& chunk : chunks_) EndChunk(chunk, events);
  if (!chunks_.empty()) {
    std::erase_if(prefill_, [this](RequestId id) { return requests_[id].state != Running::State::kPrefill; });
  }
  if (leaving_ > 0) RemoveCancelled();
  if (steps_log_ != nullptr) {
    LogRemovals();
    steps_log_->push_back({.kind = CacheChange::Kind::kStepEnd});
  }
  BeginStep(now);
}

void BatchEngine::EndChunk(const Chunk& chunk, std::vector<Event>* events) {
  Running& running = requests_[chunk.id];
  const Request& request = running.request;
  running.done += chunk.tokens;
  computed_tokens_ += chunk.tokens;
  const bool over = running.done >= request.prompt_tokens;
  const size_t named = std::min(request.prompt_blocks, running.reserved.places.size());
  const size_t filled = over ? named : std::min<size_t>(named, running.done / options_.block_tokens);
  for (; running.computed < filled; ++running.computed) SetComputed(running, running.computed);
  if (!over) return;
  if (running.cancelled) return;  // leaves with this step
  const Picos now = step_end_;
  events->push_back({Event::Kind::kFirstToken, chunk.id, request.tag, running.hit, now});
  if (request.output_tokens <= 1) {
    events->push_back({Event::Kind::kFinished, chunk.id, request.tag, running.hit, now});
    running.done += request.output_tokens;
    --running_;
    if (request.is_held) {
      running.state = Running::State::kHeld;
      return;
    }
    ReleaseBlocks(running);
    Free(chunk.id);
    return;
  }
  running.state = Running::State::kDecode;
  running.first_step = step_;
  decode_.push_back({step_ + request.output_tokens - 1, running.number, chunk.id});
  std::push_heap(decode_.begin(), decode_.end());
  contexts_ += int64_t{request.prompt_tokens} + 1;
}

// `done` now counts prompt and response.
void BatchEngine::ReleaseBlocks(Running& running) {
  const std::vector<uint32_t>& places = running.reserved.places;
  const size_t named = std::min(running.request.blocks.size(), places.size());
  // The last block of a finished response counts although it is partly filled: its content can be hit
  // like any other.
  const bool ended = running.done == running.request.prompt_tokens + running.request.output_tokens;
  const size_t filled =
      ended ? places.size() : std::min<size_t>(places.size(), running.done / options_.block_tokens);
  for (size_t i = running.computed; i < std::min(named, filled); ++i) SetComputed(running, i);
  pool_.Release(places, filled);
  blocked_ = false;
}

void BatchEngine::SetComputed(const Running& running, size_t block) {
  pool_.SetComputed(running.reserved.places[block]);
  if (steps_log_ == nullptr || changes_.empty() || !changes_.back().stored) return;
  changes_.pop_back();
  LogRemovals();
  steps_log_->push_back({.kind = CacheChange::Kind::kStored, .tag = running.request.tag, .block = block});
}

void BatchEngine::LogRemovals() {
  for (const BlockPool::Change& change : changes_) {
    steps_log_->push_back({.kind = CacheChange::Kind::kRemoved, .name = change.name});
  }
  changes_.clear();
}

void BatchEngine::LogSteps(std::vector<CacheChange>* log) {
  steps_log_ = log;
  changes_.clear();
  pool_.LogChanges(log == nullptr ? nullptr : &changes_);
}

void BatchEngine::WipeCache() {
  if (steps_log_ == nullptr) {
    pool_.Wipe();
    return;
  }
  LogRemovals();
  pool_.Wipe();
  if (pool_.resident() > 0) return;  // what requests hold is still there
  changes_.clear();
  steps_log_->push_back({.kind = CacheChange::Kind::kCleared});
}

void BatchEngine::RemoveCancelled() {
  std::vector<RequestId> leaving;
  const auto leaves = [&](RequestId id) {
    if (requests_[id].cancelled) leaving.push_back(id);
    return requests_[id].cancelled;
  };
  std::erase_if(prefill_, leaves);
  if (std::erase_if(decode_, [&](const Finish& finish) { return leaves(finish.id); }) > 0) {
    std::make_heap(decode_.begin(), decode_.end());
  }
  std::sort(leaving.begin(), leaving.end(), [this](RequestId a, RequestId b) {
    return requests_[a].number < requests_[b].number;
  });
  for (const RequestId id : leaving) {
    Running& running = requests_[id];
    if (running.state == Running::State::kDecode) {
      const auto tokens = static_cast<uint32_t>(step_ - running.first_step + 1);
      contexts_ -= int64_t{running.request.prompt_tokens} + tokens;
      running.done += tokens - 1;  // the KV of the last one is not computed yet
    }
    --running_;
    ReleaseBlocks(running);
    Free(id);
    --leaving_;
  }
}

void BatchEngine::Free(RequestId id) {
  requests_[id].state = Running::State::kFree;
  free_.push_back(id);
}

Picos BatchEngine::EndOf(uint64_t steps) const {
  const auto n = static_cast<Wide>(steps);
  const Wide end = step_begin_ + n * first_step_ps_ + n * (n - 1) / 2 * growth_ps_;
  return static_cast<Picos>(std::min<Wide>(end, kNever));
}

uint64_t BatchEngine::StepsOverBy(Picos now) const {
  uint64_t over = 0;
  uint64_t more = stretch_steps_ + 1;
  while (more - over > 1) {
    const uint64_t middle = over + (more - over) / 2;
    (EndOf(middle) <= now ? over : more) = middle;
  }
  return over;
}

void BatchEngine::BreakOff(Picos now) {
  const uint64_t steps = StepsOverBy(now) + 1;
  if (steps >= stretch_steps_) return;
  stretch_steps_ = steps;
  step_end_ = EndOf(steps);
}

}  // namespace vllm_router
