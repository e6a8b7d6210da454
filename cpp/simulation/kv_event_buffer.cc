#include "simulation/kv_event_buffer.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

#include <utility>

namespace vllm_router {
namespace {

std::string TokensJson(const std::vector<uint32_t>& tokens, size_t begin, size_t count) {
  std::string json;
  for (size_t i = begin; i < begin + count; ++i) {
    absl::StrAppend(
        &json, i == begin ? "" : ",", R"({"type":"unique_token","token_id":)", tokens[i],
        R"(,"token_extra_id":0})");
  }
  return json;
}

std::string StoredJson(const LiveEngine::CacheEvent& event) {
  std::string json = absl::StrCat(
      R"({"type":"stored","parent_hash":)", event.parent ? std::to_string(*event.parent) : "null",
      R"(,"blocks":[)");
  const size_t size = event.tokens.size() / event.blocks.size();
  for (size_t i = 0; i < event.blocks.size(); ++i) {
    absl::StrAppend(
        &json, i == 0 ? "" : ",", R"({"type":"stored_block","block_hash":)", event.blocks[i],
        R"(,"tokens":[)", TokensJson(event.tokens, i * size, size),
        R"(],"cache_level":0,"priority":35,"mm_keys":[]})");
  }
  return json + "]}";
}

template <typename Blocks>
std::string RemovedJson(const Blocks& blocks) {
  return absl::StrCat(R"({"type":"removed","block_hashes":[)", absl::StrJoin(blocks, ","), "]}");
}

}  // namespace

KvEventBuffer::KvEventBuffer(LiveEngine& engine, size_t max_events, size_t window)
    : engine_(engine), max_events_(max_events), window_(window) {
  engine_.KeepCacheSteps();
  MutexLock lock(mutex_);
  Begin();
}

void KvEventBuffer::Begin() {
  events_.clear();
  blocks_.clear();
  next_ = 0;
  AppendData(absl::StrCat(
      R"({"type":"created","num_blocks_per_cache_level":[)", engine_.options().cache_blocks, ",0]}"));
}

void KvEventBuffer::Collect() {
  MutexLock lock(mutex_);
  CollectLocked();
}

std::string KvEventBuffer::Take() {
  MutexLock lock(mutex_);
  CollectLocked();
  return absl::StrCat("[", absl::StrJoin(std::exchange(events_, {}), ","), "]");
}

void KvEventBuffer::Restart() {
  MutexLock lock(mutex_);
  engine_.ForgetCache();
  Begin();
}

void KvEventBuffer::CollectLocked() {
  engine_.TakeCacheSteps(&steps_);
  for (const LiveEngine::CacheStep& step : steps_) {
    for (const LiveEngine::CacheEvent& event : step) Append(event);
  }
}

void KvEventBuffer::Append(const LiveEngine::CacheEvent& event) {
  using Kind = LiveEngine::CacheEvent::Kind;
  switch (event.kind) {
    case Kind::kStored:
      blocks_.insert(event.blocks.begin(), event.blocks.end());
      return AppendData(StoredJson(event));
    case Kind::kRemoved:
      for (const uint64_t block : event.blocks) blocks_.erase(block);
      return AppendData(RemovedJson(event.blocks));
    case Kind::kCleared:
      if (!blocks_.empty()) AppendData(RemovedJson(std::exchange(blocks_, {})));
      return;
  }
}

void KvEventBuffer::AppendData(const std::string& data) {
  events_.push_back(
      absl::StrCat(R"({"event_id":)", next_++, R"(,"data":)", data, R"(,"window_size":)", window_, "}"));
  if (events_.size() > max_events_) events_.pop_front();
}

}  // namespace vllm_router
