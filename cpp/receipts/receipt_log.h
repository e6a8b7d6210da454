// ReceiptLog: the receipts of the last requests, one per routing decision, for people and for what learns from them.
//
//   thread 0   ReceiptWriter ── SeqlockRing ──┐
//   thread 1   ReceiptWriter ── SeqlockRing ──┼──▶ Find(filter), FindOne(request id)      any thread
//   …                                         │
//   names, workers' URLs, candidates ─────────┘    one mutex, taken once per new name and for candidates
//
//   ReceiptLog log(threads, {.per_thread = 8192, .candidates_every = 16});
//   log.writer(thread).Write({.request_id = id, .worker = &worker, .decision = &decision, …});
//
// Cost: a receipt takes no lock, unless a model, policy or worker is new to the thread. A receipt with
// candidates or a tenant takes the mutex. Of tenants the last 4,096 new ones have names: clients of a gateway may invent
// any. Memory: 192 bytes for each receipt; 1,024 lists of candidates. Find() reads all receipts.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "policy/decision.h"
#include "receipts/receipt.h"
#include "receipts/receipt_filter.h"
#include "receipts/seqlock_ring.h"

namespace vllm_router {

class ReceiptLog;

// What is known of a request at its end. Durations are nanoseconds; nullopt: it did not get there.
struct ReceiptFacts {
  std::string_view request_id;
  std::string_view model;
  std::string_view policy;
  std::string_view route;
  std::string_view end;  // how the exchange ended
  const Worker* worker = nullptr;
  const Worker* prefill = nullptr;
  const Decision* decision = nullptr;
  uint32_t block_tokens = 0;  // of the router's blocks
  std::optional<uint64_t> prompt_tokens = {};
  std::optional<uint64_t> cached_tokens = {};
  int64_t wall_us = 0;
  int64_t queue_ns = 0;
  std::optional<int64_t> decision_ns = {};
  std::optional<int64_t> first_token_ns = {};
  std::optional<int64_t> total_ns = {};
  uint32_t pd_uncached = 0;
  uint32_t pd_saved = 0;
  int status = 0;
  uint32_t attempts = 0;
  std::string_view tenant = {};          // empty: clients are not told apart
  std::string_view priority_class = {};  // its name, likewise
};

// Of one thread, which alone uses it.
class ReceiptWriter {
 public:
  ReceiptWriter(ReceiptLog* log, size_t capacity, uint32_t candidates_every)
      : log_(*log), ring_(capacity), every_(candidates_every) {}

  // Whether the decision of the next request is to be explained, so that its receipt has candidates.
  bool TakeTurn() {
    if (every_ == 0 || ++turn_ < every_) return false;
    turn_ = 0;
    return true;
  }
  // REQUIRES: a worker and a decision.
  void Write(const ReceiptFacts& facts);

  const SeqlockRing<Receipt>& ring() const { return ring_; }

 private:
  // The last name of its kind, which usually comes again, and its number.
  struct Last {
    std::string name;
    uint16_t number = 0;
  };

  uint16_t NumberOf(std::string_view name, Last* last);
  void Meet(const Worker& worker);

  ReceiptLog& log_;
  SeqlockRing<Receipt> ring_;
  const uint32_t every_;
  uint32_t turn_ = 0;
  Last model_, policy_, route_, end_, class_;
  std::map<std::string, uint16_t, std::less<>> numbers_;
  uint32_t met_ = Receipt::kNone;         // the last worker
  std::unordered_set<uint32_t> workers_;  // that the log knows
};

class ReceiptLog {
 public:
  static constexpr size_t kCandidates = 16;        // of one receipt
  static constexpr size_t kCandidateLists = 1024;  // that are kept

  struct Options {
    size_t per_thread = 0;  // > 0
    uint32_t candidates_every = 0;
  };

  ReceiptLog(size_t threads, const Options& options);

  ReceiptWriter& writer(size_t thread) { return *writers_[thread]; }

  // A receipt with its texts.
  struct Row {
    Receipt receipt;
    std::string model, policy, route, end;
    std::string worker, best_worker, prefill_worker;  // URLs; empty: none, or no longer known
    std::string tenant, priority_class;               // empty: none, or no longer known
    struct Candidate {
      std::string worker;
      ReceiptCandidate values;
    };
    std::vector<Candidate> candidates;
  };
  struct Found {
    std::vector<Row> rows;  // the newest first, by the ends of the requests
    size_t matching = 0;    // of those that are kept
    size_t reporting = 0;   // of these, those whose engine reported cached tokens
    size_t kept = 0;
    uint64_t overwritten = 0;
  };
  Found Find(const ReceiptFilter& filter) const;
  // What was added since a mark, which then is here; since an empty one: nothing.
  struct Mark {
    std::vector<uint64_t> added = {};  // by writer
  };
  struct News {
    std::vector<Receipt> receipts = {};  // of each writer, from old to new
    uint64_t added = 0;
  };
  // At most `most` of each writer, the newest.
  News AddedSince(Mark* mark, size_t most) const;
  Row RowOf(const Receipt& receipt) const;
  // The newest of that request id. nullopt: it is not kept.
  std::optional<Row> FindOne(std::string_view request_id) const;

 private:
  friend class ReceiptWriter;

  static constexpr size_t kNames = 4096;       // further ones are not told apart, and are empty
  static constexpr size_t kLongestName = 256;  // likewise
  static constexpr size_t kWorkers = 4096;     // URLs; the oldest is forgotten
  static constexpr size_t kTenants = 4096;     // likewise

  struct Candidates {
    uint32_t number = 0;
    uint32_t count = 0;
    std::array<ReceiptCandidate, kCandidates> list{};
  };

  // For the writers.
  uint16_t NumberOf(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_);
  void AddWorker(const Worker& worker) ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t NumberOfTenant(std::string_view name) ABSL_LOCKS_EXCLUDED(mutex_);
  uint32_t Keep(const Decision& decision, const ReceiptFacts& facts) ABSL_LOCKS_EXCLUDED(mutex_);

  // A filter with numbers instead of texts.
  struct Wanted {
    const ReceiptFilter& filter;
    bool nothing = false;  // no receipt has such a text
    std::optional<uint16_t> model = {};
    std::vector<uint32_t> workers = {};  // empty: any

    bool Includes(const Receipt& receipt) const;
  };
  Wanted WantedBy(const ReceiptFilter& filter) const ABSL_LOCKS_EXCLUDED(mutex_);

  Row Complete(const Receipt& receipt) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string UrlOf(uint32_t worker) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  std::vector<std::unique_ptr<ReceiptWriter>> writers_;
  mutable Mutex mutex_;  // leaf
  std::vector<std::string> names_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint16_t, std::less<>> numbers_ ABSL_GUARDED_BY(mutex_);
  std::unordered_map<uint32_t, std::string> urls_ ABSL_GUARDED_BY(mutex_);  // by worker
  std::deque<uint32_t> workers_ ABSL_GUARDED_BY(mutex_);                    // in the order they came
  std::vector<Candidates> candidates_ ABSL_GUARDED_BY(mutex_);
  uint32_t lists_ ABSL_GUARDED_BY(mutex_) = 0;  // so far
  std::unordered_map<std::string, uint32_t> tenant_numbers_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::string> tenants_ ABSL_GUARDED_BY(mutex_);  // number % kTenants
  uint32_t last_tenant_ ABSL_GUARDED_BY(mutex_) = 0;          // its number
};

}  // namespace vllm_router
