// TrustLog: what the log says when the states of workers' KV events change. A fleet that starts, or loses its network, changes
// all at once, so each state has one line a minute; the workers that came later are named in the next.
//
//   log.Changed("http://gpu-0:8000", KvTrust::kPartial, why, now)     kv events: http://gpu-0:8000 is partial: …
//   log.Changed("http://gpu-1:8000", KvTrust::kPartial, why, now)     –
//   log.Watch(now + 60 s)                                             kv events: 1 more worker is partial: http://gpu-1:8000
//
// One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "index/kv_trust.h"

namespace vllm_router {

class TrustLog {
 public:
  static constexpr int64_t kQuietNanos = 60'000'000'000;  // of a state, after each of its lines
  static constexpr size_t kNamed = 4;                     // workers in one line

  // A worker has another state than it had. `meaning` is said where the line is of that worker alone.
  void Changed(const std::string& url, KvTrust trust, std::string_view meaning, int64_t now_ns);
  // The worker is not in the fleet any more.
  void Forget(const std::string& url) { waiting_.erase(url); }
  // Once a second.
  void Watch(int64_t now_ns);

 private:
  static void Write(KvTrust trust, std::string_view text);

  std::array<int64_t, kKvTrustCount> quiet_until_ns_{};
  std::map<std::string, KvTrust> waiting_;  // states that were not told yet, by worker
};

}  // namespace vllm_router
