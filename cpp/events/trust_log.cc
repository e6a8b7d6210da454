#include "events/trust_log.h"

#include "base/log.h"
#include "base/text.h"

namespace vllm_router {

void TrustLog::Changed(const std::string& url, KvTrust trust, std::string_view meaning, int64_t now_ns) {
  waiting_.erase(url);
  int64_t& quiet_until_ns = quiet_until_ns_[static_cast<size_t>(trust)];
  if (now_ns < quiet_until_ns) {
    waiting_.emplace(url, trust);
    return;
  }
  quiet_until_ns = now_ns + kQuietNanos;
  Write(trust, Concat(url, " is ", KvTrustName(trust), ": ", meaning));
}

void TrustLog::Watch(int64_t now_ns) {
  if (waiting_.empty()) return;
  for (size_t state = 0; state < kKvTrustCount; ++state) {
    if (now_ns < quiet_until_ns_[state]) continue;
    const auto trust = static_cast<KvTrust>(state);
    size_t count = 0;
    std::string names;
    std::erase_if(waiting_, [&](const auto& entry) {
      if (entry.second != trust) return false;
      if (count++ < kNamed) names += Concat(names.empty() ? "" : ", ", entry.first);
      return true;
    });
    if (count == 0) continue;
    quiet_until_ns_[state] = now_ns + kQuietNanos;
    if (count > kNamed) names += Concat(" and ", count - kNamed, " others");
    const std::string_view are = count == 1 ? " more worker is " : " more workers are ";
    Write(trust, Concat(count, are, KvTrustName(trust), ": ", names));
  }
}

void TrustLog::Write(KvTrust trust, std::string_view text) {
  const bool is_good = IsComplete(trust) || trust == KvTrust::kWaiting;
  Log(is_good ? LogLevel::kInfo : LogLevel::kWarning, Concat("kv events: ", text));
}

}  // namespace vllm_router
