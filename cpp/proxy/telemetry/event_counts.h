// What a thread counts of events that are no exchange: connections, calls for token IDs, keys that are validated. Each part
// of the router has a struct of its own. Relaxed, since a scrape may read them at any time.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vllm_router {

// Tries, by result.
struct ResultCounts {
  std::atomic<uint64_t> ok{0};
  std::atomic<uint64_t> failed{0};

  void Add(bool worked) { (worked ? ok : failed).fetch_add(1, std::memory_order_relaxed); }
};

struct ConnectionCounts {
  std::atomic<int64_t> clients{0};  // open now
  std::atomic<uint64_t> rejected{0};
  std::atomic<uint64_t> evicted{0};       // idle ones, closed for new ones
  std::atomic<uint64_t> never_begun{0};   // closed by the head timeout without a byte of a request
  std::atomic<uint64_t> tls_failures{0};  // of clients' handshakes
  ResultCounts connects;                  // to workers
  std::atomic<int64_t> upstream_open{0};  // to workers, idle ones included
  std::atomic<int64_t> upstream_idle{0};
};

// How our call for token IDs ended (proxy/client/remote_tokenizer.h); a label of tokenize_calls_total.
enum class TokenizeEnd : uint8_t { kOk, kTimeout, kFailed, kRefused, kUnknown, kGone, kNobody };
inline constexpr int kTokenizeEndCount = static_cast<int>(TokenizeEnd::kNobody) + 1;
inline std::string_view TokenizeEndName(TokenizeEnd end) {
  constexpr std::array<std::string_view, kTokenizeEndCount> kNames = {
      "ok", "timeout", "failed", "refused", "unknown", "gone", "nobody"};
  return kNames[static_cast<size_t>(end)];
}

struct TokenizeCounts {
  using ByEnd = std::array<std::atomic<uint64_t>, kTokenizeEndCount>;
  ByEnd calls{};
  ByEnd background_calls{};
  std::atomic<uint64_t> nanos{0};  // that requests waited for token IDs
};

// Of KeyValidator (proxy/security/key_validator.h).
struct KeyValidationCounts {
  std::atomic<int64_t> waiting{0};          // requests
  std::atomic<uint64_t> rejected_full{0};   // rejected requests: no free place
  std::atomic<uint64_t> rejected_share{0};  // or none for their client's address
};

}  // namespace vllm_router
