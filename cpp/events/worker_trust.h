// WorkerTrust: how far the KV events of one worker are trusted, from what each of its sources deserves. It tells
// ReportedBlocks, which routing goes by, and the log.
//
//   sources   exact, partial          partial
//             exact, mismatch         mismatch, or partial if the second has never sent anything of use
//   the worker computed new blocks and none of its sources told of any for kSilentNanos     silent
//
// A source of no use beside others may be a stray one, which does not condemn the worker: if it is a rank of it
// after all, what is missing is inferred from requests. One thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "events/trust_log.h"
#include "index/kv_trust.h"
#include "index/reported_blocks.h"
#include "worker/worker.h"

namespace vllm_router {

class WorkerTrust {
 public:
  static constexpr int64_t kSilentNanos = 10'000'000'000;
  static std::atomic<int64_t> silent_nanos;   // the same; tests set a shorter time
  static constexpr uint64_t kDebtBlocks = 4;  // below, silence may be chance

  // What the log says besides, by the kind of the sources. Both outlive it.
  struct Texts {
    std::string_view partial;  // what is missing, and what helps
    std::string_view silent;   // what helps
  };

  // `blocks` and `log` outlive it.
  WorkerTrust(ReportedBlocks* blocks, TrustLog* log, WorkerId worker, std::string url, const Texts& texts);
  // The worker has no sources any more.
  void Leave() const {
    blocks_.SetTrust(worker_, KvTrust::kOff);
    log_.Forget(url_);
  }

  // It told something, so it owes nothing.
  void OnPublished();
  // Where it is listened to, for the log.
  void set_endpoints(std::string endpoints) { endpoints_ = std::move(endpoints); }
  // Once a second.
  void Watch(int64_t now_ns);

  // Each of its sources, then Decide(). `was_useful`: blocks of it were stored.
  void Add(KvTrust trust, bool was_useful);
  void Decide(int64_t now_ns);

 private:
  std::string Meaning() const;

  ReportedBlocks& blocks_;
  TrustLog& log_;
  const WorkerId worker_;
  const std::string url_;
  const Texts& texts_;
  std::string endpoints_;

  // Since the last Decide().
  std::optional<KvTrust> least_;
  bool has_useless_ = false;
  bool published_ = false;

  KvTrust trust_ = KvTrust::kOff;
  std::optional<int64_t> owing_since_ns_;
  bool is_silent_ = false;
  KvTrust logged_ = KvTrust::kWaiting;  // the first wait is no news
};

}  // namespace vllm_router
