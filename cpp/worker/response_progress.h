// ResponseProgress: when a worker sent something last, and how long requests waited there for their first
// token. HangDetector (hang_detector.h) learns from both what is usual.
//
//   waits: responses by kind      stream: an event stream, or prefill's response; plain: all others,
//                                 whose first byte comes when everything is generated
//       by size of the request    < 4 KiB, < 16 KiB, … < 1 MiB, more: a longer prompt takes longer
//       by duration               < 16 ms, < 32 ms, … < 131 s, more
//
// Cost: one relaxed increment and one clock reading per request, and one clock reading per piece of a
// stream; a time is stored at most every 50 ms, so threads seldom compete for it. Thread-safe.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace vllm_router {

enum class ResponseKind : uint8_t { kStream, kPlain };

inline constexpr size_t kResponseKinds = 2;
inline constexpr size_t kRequestSizes = 6;
inline constexpr size_t kWaitTimes = 15;

// The size's class: four times the bytes, one more.
constexpr size_t RequestSizeOf(uint64_t bytes) {
  const auto width = static_cast<size_t>(std::bit_width(bytes / 4096));
  return std::min(kRequestSizes - 1, (width + 1) / 2);
}
// The duration's class, and the end of a class in nanoseconds.
constexpr size_t WaitTimeOf(int64_t nanos) {
  const int64_t ms = std::max<int64_t>(0, nanos) / 1'000'000;
  return std::min(kWaitTimes - 1, static_cast<size_t>(std::bit_width(static_cast<uint64_t>(ms / 16))));
}
constexpr int64_t WaitTimeEnd(size_t time) { return 16'000'000ll << time; }

template <typename Number>
using WaitTable = std::array<std::array<std::array<Number, kWaitTimes>, kRequestSizes>, kResponseKinds>;

class alignas(64) ResponseProgress {
 public:
  static constexpr size_t kClients = 8;

  // A byte of a successful response.
  void Touch(int64_t now_ns) {
    if (now_ns - last_byte_ns() >= kStepNs) last_byte_ns_.store(now_ns, std::memory_order_relaxed);
  }
  // The first of one, for which its request waited since all of it was sent. `client`: a number of its client.
  void CountFirstByte(
      ResponseKind kind, uint64_t request_bytes, int64_t waited_ns, uint64_t client, int64_t now_ns) {
    waits_[static_cast<size_t>(kind)][RequestSizeOf(request_bytes)][WaitTimeOf(waited_ns)].fetch_add(
        1, std::memory_order_relaxed);
    const uint32_t place = next_client_.fetch_add(1, std::memory_order_relaxed);
    clients_[place % kClients].store(client, std::memory_order_relaxed);
    Touch(now_ns);
  }

  int64_t last_byte_ns() const { return last_byte_ns_.load(std::memory_order_relaxed); }  // 0: none yet
  // Since the worker joined; each wraps around.
  WaitTable<uint32_t> Waits() const {
    WaitTable<uint32_t> table;
    for (size_t kind = 0; kind < kResponseKinds; ++kind) {
      for (size_t size = 0; size < kRequestSizes; ++size) {
        for (size_t time = 0; time < kWaitTimes; ++time) {
          table[kind][size][time] = waits_[kind][size][time].load(std::memory_order_relaxed);
        }
      }
    }
    return table;
  }
  // Of the last responses.
  void AddClients(std::vector<uint64_t>* clients) const {
    for (const std::atomic<uint64_t>& client : clients_) {
      const uint64_t number = client.load(std::memory_order_relaxed);
      if (number != 0) clients->push_back(number);
    }
  }

 private:
  static constexpr int64_t kStepNs = 50'000'000;

  std::atomic<int64_t> last_byte_ns_{0};
  std::atomic<uint32_t> next_client_{0};
  std::array<std::atomic<uint64_t>, kClients> clients_{};
  WaitTable<std::atomic<uint32_t>> waits_{};
};

}  // namespace vllm_router
