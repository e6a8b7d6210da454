// What a worker says of itself. Its load, running and waiting requests, in one of three ways:
//
//   GET /metrics    Prometheus text: vllm:num_requests_running + ..._waiting, or sglang:num_running_reqs + num_queue_reqs
//   GET /get_load   SGLang's {"load": 7}, which does not tell how many wait
//   GET /load       vLLM's {"server_load": 7}, likewise
//
// LoadSource remembers which of them a worker has, so that it is not asked for the others every time:
//
//             has it                 none of the three
//   metrics --------> metrics      metrics -> get_load -> load -> nothing: a pause, then metrics again
//
// And how many tokens its KV cache holds and how many a block of it has, in GET /metrics alone: vllm:cache_config_info's
// labels num_gpu_blocks and block_size; or sglang:max_total_num_tokens, and sglang:page_size (before 0.5.11 a label of
// sglang:cache_config_info).
//
// Strict: a sample, a count or a text that is not as it should be makes the whole report none. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace vllm_router {

// More than any engine has; a report of more is none.
inline constexpr int64_t kMostReportedLoad = 100'000'000;
inline constexpr uint64_t kMostCacheTokens = 1'000'000'000;

struct ReportedLoad {
  int64_t requests = 0;
  int64_t waiting = 0;  // of them; 0 where the worker does not tell

  friend bool operator==(const ReportedLoad&, const ReportedLoad&) = default;
};

struct ReportedCache {
  uint64_t tokens = 0;        // at least 1
  uint32_t block_tokens = 0;  // 1..kMaxBlockSize; 0: it does not tell

  friend bool operator==(const ReportedCache&, const ReportedCache&) = default;
};

// The samples of one data-parallel rank (label `engine`, or SGLang's `dp_rank`), or of all, added up.
std::optional<ReportedLoad> LoadInMetrics(std::string_view text, std::optional<uint32_t> rank);
// The same of caches; a sample without the label is everybody's. Of several block sizes the largest counts.
std::optional<ReportedCache> CacheInMetrics(std::string_view text, std::optional<uint32_t> rank);
// Of a whole host.
std::optional<ReportedLoad> LoadInGetLoad(std::string_view json);
std::optional<ReportedLoad> LoadInLoad(std::string_view json);

// One thread.
class LoadSource {
 public:
  enum class At : uint8_t { kMetrics, kGetLoad, kLoad, kNowhere };
  static constexpr int kPause = 10;  // polls, when a worker has none of them

  // At the beginning of a poll.
  void Begin() {
    asked_ = 0;
    if (at_ == At::kNowhere && ++paused_ >= kPause) at_ = At::kMetrics;
  }
  // Where to ask now; kNowhere: this poll is over.
  At at() const { return asked_ == 3 ? At::kNowhere : at_; }
  std::string_view target() const;
  // What was learned there: it is not there, so the next one is to be asked. (Nothing, when it is there.)
  void Lacks();

 private:
  At at_ = At::kMetrics;
  int asked_ = 0;  // in this poll, in vain
  int paused_ = 0;
};

}  // namespace vllm_router
