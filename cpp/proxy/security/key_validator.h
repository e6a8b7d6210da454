// KeyValidator validates clients' keys externally (--api-key-validation-urls): GET with the client's
// Authorization; 200 from any URL means valid. Its X-Tenant and X-Max-Class say what the key may claim.
//
//   thread --Validate(key)--> remembered? ----------------------------------------> validity
//                          |no
//                          v             one query per key, however many wait
//                   control thread: [query]--URL after URL--> yes | no | unknown --posted to all waiters
//
// KeyQueue decides which query is next and whose requests may wait for one: keys that were valid before
// come first, and client addresses take turns. A query without waiting clients is dropped, or abandoned
// if it is running.
//
// Yes is remembered for as long as the flag says, No for some seconds. Unknown is not remembered: no URL
// could be reached, or none said yes and not all said no. A request with such a key is not served now,
// and its next request queries again. Only digests of keys are remembered.
//
// Remembered() and Validate() on any thread; queries run on the control thread. Cost of a remembered
// result: a digest, a lock and a table lookup.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "admission/key_grant.h"
#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"
#include "hashing/sha256.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/security/key_queue.h"
#include "worker/worker_url.h"

namespace vllm_router {

class CancelScope;
class HttpClient;
struct KeyValidationCounts;

enum class KeyValidity : uint8_t { kYes, kNo, kUnknown };

struct KeyVerdict {
  KeyValidity validity = KeyValidity::kUnknown;
  std::shared_ptr<const KeyGrant> grant =
      {};  // null: the service says nothing of the key but that it is valid
};

// The remembered results. Thread-safe.
class KeyValidityCache {
 public:
  KeyValidityCache(int64_t yes_nanos, int64_t no_nanos, size_t most_of_each);

  void Remember(const Digest256& key, const KeyVerdict& verdict, int64_t now_nanos);
  std::optional<KeyVerdict> Find(const Digest256& key, int64_t now_nanos) const;
  // Whether the last validity was a yes, though it may have expired.
  bool WasYes(const Digest256& key) const;
  size_t size() const;

 private:
  struct Hash {
    size_t operator()(const Digest256& digest) const { return DigestWord(digest, 0); }
  };
  struct Remembered {
    int64_t until = 0;  // nanoseconds
    std::shared_ptr<const KeyGrant> grant;
  };
  using Table = std::unordered_map<Digest256, Remembered, Hash>;

  const int64_t yes_nanos_;
  const int64_t no_nanos_;
  const size_t most_;
  mutable Mutex mutex_;                // leaf
  Table yes_ ABSL_GUARDED_BY(mutex_);  // separate from the others, so that invented keys evict no good one
  Table no_ ABSL_GUARDED_BY(mutex_);
};

class KeyValidator {
 public:
  struct Options {
    std::vector<std::string> urls;
    int64_t remember_ms;
    int64_t timeout_ms;  // per URL
  };
  // InvalidArgument names the URL.
  static StatusOr<std::unique_ptr<KeyValidator>> Make(const Options& options);

  // Before the threads run: the control thread's, with which keys are validated. Both outlive it.
  void Attach(HttpClient* http, KeyValidationCounts* counts) {
    http_ = http;
    counts_ = counts;
  }

  // No query is left on the control thread.
  bool ended() const { return working_ == 0; }

  // A waiting request. Cancel() ends the wait, in a later turn of its thread's loop.
  class Waiter : public KeyQueue::Waiter {
   public:
    // `address`: of the client.
    Waiter(EventLoop& loop, KeyValidator& validator, std::string address)
        : KeyQueue::Waiter(std::move(address)), loop_(loop), validator_(validator) {}
    static void Cancel(const std::shared_ptr<Waiter>& waiter);

   private:
    friend class KeyValidator;
    EventLoop& loop_;
    KeyValidator& validator_;
    Signal notified_;
    bool done_ = false;
    KeyVerdict verdict_;
    std::shared_ptr<Waiter> queued_;  // itself, while the queue has it; of the control thread
  };
  Task<KeyVerdict> Validate(std::string key, std::shared_ptr<Waiter> waiter);

 private:
  struct Address {
    WorkerUrl host;
    std::string target;
  };
  explicit KeyValidator(const Options& options);
  void Enqueue(const Digest256& digest, std::string key, const std::shared_ptr<Waiter>& waiter);
  void Leave(Waiter* waiter);
  void ShowWaiting();
  Task<void> Work();
  Task<KeyVerdict> Query(CancelScope& scope, std::string key);
  static void Notify(const std::shared_ptr<Waiter>& waiter, KeyVerdict verdict);

  const int64_t timeout_ms_;
  std::vector<Address> addresses_;
  KeyValidityCache remembered_;
  SteadyClock clock_;
  HttpClient* http_ = nullptr;
  KeyValidationCounts* counts_ = nullptr;

  // Of the control thread.
  KeyQueue queue_;
  std::unordered_map<const KeyQueue::Validation*, CancelScope*> running_;
  size_t working_ = 0;
};

}  // namespace vllm_router
