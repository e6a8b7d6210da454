#include "events/worker_trust.h"

#include <utility>

#include "base/text.h"

namespace vllm_router {

std::atomic<int64_t> WorkerTrust::silent_nanos{kSilentNanos};

WorkerTrust::WorkerTrust(
    ReportedBlocks* blocks, TrustLog* log, WorkerId worker, std::string url, const Texts& texts)
    : blocks_(*blocks), log_(*log), worker_(worker), url_(std::move(url)), texts_(texts) {}

void WorkerTrust::OnPublished() {
  blocks_.SettleDebt(worker_);
  owing_since_ns_.reset();
  is_silent_ = false;
  published_ = true;
}

void WorkerTrust::Watch(int64_t now_ns) {
  if (blocks_.owed(worker_) < kDebtBlocks) {
    owing_since_ns_.reset();
  } else if (!owing_since_ns_) {
    owing_since_ns_ = now_ns;
  } else if (now_ns - *owing_since_ns_ >= silent_nanos.load(std::memory_order_relaxed)) {
    is_silent_ = true;
  }
}

void WorkerTrust::Add(KvTrust trust, bool was_useful) {
  if (trust == KvTrust::kMismatch && !was_useful) {
    has_useless_ = true;
  } else {
    least_ = least_ ? LessTrusted(*least_, trust) : trust;
  }
}

void WorkerTrust::Decide(int64_t now_ns) {
  KvTrust trust = least_.value_or(has_useless_ ? KvTrust::kMismatch : KvTrust::kWaiting);
  if (has_useless_) trust = LessTrusted(trust, IsUsable(trust) ? KvTrust::kPartial : KvTrust::kMismatch);
  if (is_silent_) trust = KvTrust::kSilent;
  least_.reset();
  has_useless_ = false;
  // Also where it stays the same, since a request to empty the cache may have set it aside meanwhile.
  if (std::exchange(published_, false) || trust != trust_) blocks_.SetTrust(worker_, trust);
  trust_ = trust;
  if (std::exchange(logged_, trust_) != trust_) log_.Changed(url_, trust_, Meaning(), now_ns);
}

std::string WorkerTrust::Meaning() const {
  switch (trust_) {
    case KvTrust::kExact:
      return "its events tell exactly what its cache holds";
    case KvTrust::kSettled:
      return "earlier events are missing, but those since then account for all of its GPU cache";
    case KvTrust::kPartial:
      return std::string(texts_.partial);
    case KvTrust::kSilent:
      return Concat(
          "it published nothing for 10 s while it computed about ", blocks_.owed(worker_),
          " new blocks; its cache is inferred from requests. ",
          endpoints_.empty() ? "" : Concat("It is listened to at ", endpoints_, ". "), texts_.silent);
    case KvTrust::kMismatch:
      return "more than half of its events cannot be used, for the reasons in GET /admin/kv-events; its "
             "cache is inferred from requests";
    case KvTrust::kOff:
    case KvTrust::kWaiting:
      break;
  }
  return "nothing is known from its events yet; its cache is inferred from requests";
}

}  // namespace vllm_router
