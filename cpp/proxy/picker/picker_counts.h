// PickerCounts: what the endpoint picker counts, over all threads; its metrics are written from here. Any thread.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vllm_router {

// What became of a request at the data plane; a label of epp_picks_total.
enum class PickResult : uint8_t {
  kPicked,
  kSubsetEmpty,  // no worker is at an endpoint of its subset
  kShed,         // by the rate limit, the queue or the memory for bodies
  kNoWorkers,
  kInvalid,   // no worker can be found for it: its model is unknown, or its body too large
  kLeft,      // its stream ended before a worker was chosen
  kObserved,  // in observability mode, where the data plane waits for no choice
};
inline constexpr size_t kPickResultCount = 7;
std::string_view PickResultName(PickResult result);

struct PickerCounts {
  std::array<std::atomic<uint64_t>, kPickResultCount> picks{};
  std::atomic<int64_t> streams{0};  // of requests
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> probes{0};    // connections to the port of the health service
  std::atomic<uint64_t> refused{0};  // connections beyond the maximum of a thread, of either kind
  std::atomic<uint64_t> served_elsewhere{
      0};  // requests that another worker served than the one that was chosen
  std::atomic<uint64_t> protocol_errors{0};  // connections and streams that broke a rule

  void Add(PickResult result) { picks[static_cast<size_t>(result)].fetch_add(1, std::memory_order_relaxed); }
};

}  // namespace vllm_router
