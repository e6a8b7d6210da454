// What a worker reports about itself. Its load, running and waiting requests, comes in one of three
// ways:
//
//   GET /metrics    Prometheus text: vllm:num_requests_running + ..._waiting,
//                   or sglang:num_running_reqs + num_queue_reqs, or llama.cpp's
//                   llamacpp:requests_processing + requests_deferred
//   GET /get_load   SGLang's {"load": 7}, without the number of waiting requests
//   GET /load       vLLM's {"server_load": 7}, likewise
//
// /metrics also has the used share of the KV cache, without blocks that are cached only: vllm:kv_cache_usage_perc
// (before 0.10 vllm:gpu_cache_usage_perc) or sglang:token_usage, all from 0 to 1.
//
// LoadSource remembers which of them a worker has, so that later polls skip the others:
//
//             has it                 none of the three
//   metrics --------> metrics      metrics -> get_load -> load -> nothing: a pause, then metrics again
//
// The KV cache's size in tokens and its block size come from GET /metrics alone:
// vllm:cache_config_info's labels num_gpu_blocks and block_size; or sglang:max_total_num_tokens, and
// sglang:page_size (before 0.5.11 a label of sglang:cache_config_info). So does the number of blocks that KV
// events can name at once: all of vLLM's but one, which is never used; SGLang's tokens by its page size.
//
// Strict: one malformed sample, count or text rejects the whole report, except that a share which is none is not
// known. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "worker/worker.h"

namespace vllm_router {

// More than any engine has; a report of more is rejected.
inline constexpr int64_t kMostReportedLoad = 100'000'000;
inline constexpr uint64_t kMostCacheTokens = 1'000'000'000;

struct ReportedLoad {
  int64_t requests = 0;
  int64_t waiting = 0;           // included in the above; 0 if not reported
  std::optional<double> kv_use;  // 0..1; of several ranks the mean

  friend bool operator==(const ReportedLoad&, const ReportedLoad&) = default;
};

struct ReportedCache {
  uint64_t tokens = 0;                // at least 1
  uint32_t block_tokens = 0;          // 1..kMaxBlockSize; 0: not reported
  std::vector<GpuBlocks> gpu_blocks;  // of each rank; empty: not reported

  friend bool operator==(const ReportedCache&, const ReportedCache&) = default;
};

// The samples of one data-parallel rank (label `engine`, or SGLang's `dp_rank`), or the sum of all.
std::optional<ReportedLoad> LoadInMetrics(std::string_view text, std::optional<uint32_t> rank);
// The same for caches; a sample without the label applies to every rank. Of several block sizes the
// largest counts.
std::optional<ReportedCache> CacheInMetrics(std::string_view text, std::optional<uint32_t> rank);
// Of a whole host.
std::optional<ReportedLoad> LoadInGetLoad(std::string_view json);
std::optional<ReportedLoad> LoadInLoad(std::string_view json);

// One thread.
class LoadSource {
 public:
  enum class At : uint8_t { kMetrics, kGetLoad, kLoad, kNowhere };
  static constexpr int kPause = 10;  // polls, if a worker has none of the endpoints

  // At the start of a poll.
  void Begin() {
    asked_ = 0;
    if (at_ == At::kNowhere && ++paused_ >= kPause) at_ = At::kMetrics;
  }
  // Which endpoint to poll now; kNowhere: this poll is over.
  At at() const { return asked_ == 3 ? At::kNowhere : at_; }
  std::string_view target() const;
  // The worker lacks that endpoint, so the next one is polled. (Not called if it has the endpoint.)
  void Lacks();

 private:
  At at_ = At::kMetrics;
  int asked_ = 0;  // endpoints found missing in this poll
  int paused_ = 0;
};

}  // namespace vllm_router
