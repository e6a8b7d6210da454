// KeyQueue: which clients' keys are validated next, and which requests wait for each
// (--api-key-validation-urls).
//
//   refreshes    [k7] [k2]                      keys that were valid at their last validation: always first
//   addresses    10.0.0.1  [k1] [k4] [k5] …     other keys, by the address of the client that sent them;
//                10.0.0.2  [k3]                 one from each address in turn: k1 k3 k4 k5 …
//   running      k6, k8
//
// Keys can be invented, so a client must not delay others by sending many. Its keys queue behind each
// other, not ahead of those of another address. One address has at most `address_share` of the `places`
// for waiting requests. A key without waiting requests leaves the queue; if its validation has begun,
// that is to be abandoned. A key that clients of several addresses wait for is in the queue of each.
// Requests whose key is being refreshed do not count against their address: the key is known to be good,
// and many clients may share it behind one proxy.
//
// A pure structure: it says what to validate and what to abandon, and does neither. Waiters belong to
// the caller and must not move while they wait. O(1) per operation, in hash tables. One thread.
//
//   if (queue.Enter(&waiter, digest, key, known) == KeyQueue::Entry::kNew) …
//   std::shared_ptr<KeyQueue::Validation> next = queue.Begin();             // null: the queue is empty
//   for (KeyQueue::Waiter* waiter : queue.End(*next)) Tell(waiter, result);
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "hashing/sha256.h"

namespace vllm_router {

class KeyQueue {
 public:
  struct Validation;

  // A waiting request.
  class Waiter {
   public:
    explicit Waiter(std::string address) : address_(std::move(address)) {}
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;

   private:
    friend class KeyQueue;
    const std::string address_;  // of its client
    std::shared_ptr<Validation> validation_;
    std::list<Waiter*>::iterator at_;
  };

  // One key that waits for validation or is being validated.
  struct Validation {
    Validation(const Digest256& digest, std::string key, bool refresh)
        : digest(digest), key(std::move(key)), refresh(refresh) {}

    const Digest256 digest;
    const std::string key;
    const bool refresh;

   private:
    friend class KeyQueue;
    struct Place {  // in the queue of an address
      size_t waiters = 0;
      std::list<Validation*>::iterator at;
    };
    using Places = std::unordered_map<std::string, Place>;
    bool running = false;
    std::list<Waiter*> waiters;
    Places places;                        // empty for a refresh or while running
    std::list<Validation*>::iterator at;  // of a refresh that is not running
  };

  KeyQueue(size_t places, size_t address_share) : places_(places), address_share_(address_share) {}

  enum class Entry : uint8_t { kNew, kJoined, kFull, kAddressFull };
  // `refresh`: the key was valid at its last validation. The waiter waits after kNew and kJoined.
  Entry Enter(Waiter* waiter, const Digest256& digest, std::string key, bool refresh);

  // The next validation, which is running from now on; null: none is queued.
  std::shared_ptr<Validation> Begin();

  // The validation has a result: returns its waiters; none if it was abandoned.
  std::vector<Waiter*> End(const Validation& validation);

  // The waiter stops waiting; no effect if it does not wait. Returns not null if a running validation
  // has no waiters any more and is to be abandoned. The same key is validated anew when it comes again.
  std::shared_ptr<Validation> Leave(Waiter* waiter);

  size_t waiting() const { return waiting_; }  // requests
  size_t waiting_of(const std::string& address) const;
  size_t queued() const { return queued_; }  // keys whose validation has not begun

 private:
  struct Hash {
    size_t operator()(const Digest256& digest) const { return DigestWord(digest, 0); }
  };
  // A client address with waiting requests.
  struct Address {
    size_t waiters = 0;                     // that count against its share
    std::list<Validation*> queue;           // that have not begun
    std::list<std::string>::iterator turn;  // while the queue is not empty
  };

  void EnterQueue(Validation* validation, const std::string& address);
  void LeaveQueue(Validation::Places::iterator place);
  void LeaveQueues(Validation* validation);
  void Release(Waiter* waiter);

  const size_t places_;
  const size_t address_share_;
  size_t waiting_ = 0;
  size_t queued_ = 0;
  std::unordered_map<Digest256, std::shared_ptr<Validation>, Hash> validations_;
  std::unordered_map<std::string, Address> addresses_;
  std::list<Validation*> refreshes_;
  std::list<std::string> turns_;  // addresses with a queue, the next one first
};

}  // namespace vllm_router
