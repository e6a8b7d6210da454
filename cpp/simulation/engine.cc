#include "simulation/engine.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace vllm_router {

namespace {

int64_t Nanos(double microseconds) { return std::llround(microseconds * 1e3); }

}  // namespace

size_t Timeline::TokensAt(int64_t now) const {
  if (now < first_token) return 0;
  if (token_interval == 0) return output_tokens;
  return std::min(output_tokens, static_cast<size_t>((now - first_token) / token_interval) + 1);
}

Engine::Engine(const EngineOptions& options) : options_(options), cache_(options.cache_blocks) {
  ROUTER_CHECK(options.block_tokens > 0, "a block holds at least one token");
}

Engine::Started Engine::Start(const Request& request, int64_t now) {
  // Those whose prefill is over have left the lane; forget them, so that it stays as short as the real queue.
  while (!lane_.empty()) {
    auto first = in_flight_.find(lane_.front());
    if (first != in_flight_.end() && first->second.prefill_end > now) break;
    lane_.pop_front();
  }

  Started started;
  const size_t most_blocks =
      request.prompt_tokens == 0 ? 0 : (request.prompt_tokens - 1) / options_.block_tokens;
  started.cached_tokens = std::min(cache_.Match(request.chain), most_blocks) * options_.block_tokens;
  cache_.Use(request.chain);

  const double uncached = static_cast<double>(request.prompt_tokens - started.cached_tokens);
  Timeline& timeline = started.timeline;
  timeline.prefill_start = std::max(now, lane_free_);
  timeline.prefill_end = timeline.prefill_start + Nanos(options_.prefill_us_per_token * uncached);
  timeline.first_token = timeline.prefill_end + Nanos(options_.ttft_ms * 1e3);
  timeline.token_interval =
      Nanos(options_.tpot_ms * 1e3 + options_.tpot_us_per_running * static_cast<double>(in_flight_.size()));
  timeline.output_tokens = request.output_tokens;

  lane_free_ = timeline.prefill_end;
  started.id = ++last_id_;
  in_flight_.emplace(started.id, timeline);
  if (timeline.prefill_end > now) lane_.push_back(started.id);
  return started;
}

const Timeline& Engine::TimelineOf(uint64_t id) const {
  auto found = in_flight_.find(id);
  ROUTER_CHECK(found != in_flight_.end(), "the request has not started, or has left");
  return found->second;
}

bool Engine::Leave(uint64_t id, std::span<const uint64_t> chain, int64_t now) {
  auto found = in_flight_.find(id);
  ROUTER_CHECK(found != in_flight_.end(), "a request leaves once");
  const Timeline left = found->second;
  in_flight_.erase(found);
  cache_.Use(chain);
  if (left.prefill_end <= now) return false;

  // Its place on the lane is given back: whoever stands behind moves up by what was left of its prefill.
  const int64_t freed = left.prefill_end - std::max(left.prefill_start, now);
  lane_free_ -= freed;
  auto place = lane_.erase(std::find(lane_.begin(), lane_.end(), id));
  const bool moved = freed > 0 && place != lane_.end();
  for (; place != lane_.end(); ++place) {
    Timeline& behind = in_flight_.at(*place);
    behind.prefill_start -= freed;
    behind.prefill_end -= freed;
    behind.first_token -= freed;
  }
  return moved;
}

Engine::Load Engine::LoadAt(int64_t now) const {
  Load load;
  for (auto place = lane_.rbegin(); place != lane_.rend(); ++place) {
    auto found = in_flight_.find(*place);
    if (found == in_flight_.end()) continue;
    if (found->second.prefill_start <= now) break;
    ++load.waiting;
  }
  load.running = in_flight_.size() - load.waiting;
  return load;
}

}  // namespace vllm_router
