// RequestQuarantine: requests that were in flight on workers when these died, and the clients that sent
// them. A request that crashes its worker (a query of death) must not take down one worker after the
// other, by retries or because its client repeats it.
//
//   a connection was lost with the request on it
//        |
//      pending --the worker's next connect or health check fails--> a death of the request
//        |                                                              |
//        |  it responds, or 10 s pass without a report                  |  two deaths
//        v                                                              v
//      forgotten                                         quarantined for 60 s: rejected on arrival
//
// A host that has completed an equal request three times since the first loss does not die of it: its
// next loss is innocent, and so is the death that was counted there. So a prompt that many clients share
// is not rejected because workers are killed or restarted one after the other. Completions on one host
// do not count for another (engines differ). Each innocent loss takes three new completions, so that a
// request that crashes workers only now and then is found. An equal request that was in flight when the
// quarantine began ends the quarantine when it completes; the deaths stay counted.
//
// All requests that a dying worker had are pending, the innocent ones too; they are innocent until a
// second worker dies under them. Where there are health checks, a request with two losses, pending or
// deaths, is rejected already, so that the result does not depend on the speed of the checks. Ranks of
// one host die together and count as one; so do equal requests on one dying host, whose losses are
// reported one after the other.
//
// A client whose requests are quarantined again and again, more often than chance explains, is restricted:
// one request at a time, and none of them is sent to a second worker after a loss. When one more host is
// lost with a request of this client, all its requests are rejected for ten seconds, and when that host has
// died, for a minute and more. So changing the body each time does not help for long. What is more than
// chance, and how long a restriction lasts: client_suspicion.h.
//
// Requests are known by a cryptographic digest of path and body, so a client cannot forge a request
// that counts as another's; no content is kept. Time is passed in. Thread-safe: one short mutex, which
// a request takes only while a request is quarantined or a client restricted (active(), one relaxed load
// each); at most 10,000 requests and 10,000 clients are remembered, the oldest are dropped first (about
// 0.6 and 0.3 KiB each). A death costs a walk over both.
//
//   quarantine.ReportLoss({.digest = DigestOfRequest(path, body), .bytes = body.size(), …}, now);
//   quarantine.ReportDown(host, now);                       // a health check could not connect
//   quarantine.IsSuspected(digest, now)                     // true after a second host
//
// SRE name: "query of death" (Site Reliability Engineering, O'Reilly 2016, chapter 22).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/limits.h"
#include "base/mutex.h"

namespace vllm_router {

struct RequestDigest {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const RequestDigest&, const RequestDigest&) = default;
};

// 128 bits of SHA-256. Cost: 0.2 us, and 0.7 ns per byte.
RequestDigest DigestOfRequest(std::string_view path, std::string_view body);

struct QuarantineOptions {
  int64_t pending_ns = 10'000'000'000;  // how long a loss waits for news of its worker
  int64_t memory_ns =
      600'000'000'000;  // from one death of a request, or quarantine of a client's, to the next
  int64_t quarantine_ns = 60'000'000'000;    // how long a request is rejected
  int64_t restriction_ns = 600'000'000'000;  // how long a client is restricted that ends a worker meanwhile
  size_t max_requests = kMaxSuspectedRequests;
  size_t max_clients = kMaxSuspectedClients;
  // True if two losses make a suspect before the fate of the workers is known. Only if health checks
  // will soon tell.
  bool suspect_pending = true;
};

class ClientSuspicion;

class RequestQuarantine {
 public:
  explicit RequestQuarantine(const QuarantineOptions& options = {});
  ~RequestQuarantine();
  RequestQuarantine(const RequestQuarantine&) = delete;
  RequestQuarantine& operator=(const RequestQuarantine&) = delete;

  // True if any request may be rejected at present. While it is false, no request needs a check.
  bool active() const {
    return suspected_lengths() != 0 || restrictions_.load(std::memory_order_relaxed) != 0;
  }
  // True if a body of this length may be a rejected one. False for nearly all, so few digests are
  // computed.
  bool MayKnow(uint64_t body_bytes) const { return (suspected_lengths() & LengthBit(body_bytes)) != 0; }
  // True if a success of a body of this length may change anything. False for nearly all, as above.
  bool MayForget(uint64_t body_bytes) const {
    return known_lengths_[LengthSlot(body_bytes)].load(std::memory_order_relaxed) != 0;
  }

  struct Loss {
    RequestDigest digest;
    uint64_t bytes = 0;  // of the body
    uint64_t host = 0;   // of the worker; any number that identifies it
    uint64_t client = 0;
    int64_t sent_ns = 0;          // when the host got it
    std::string_view request_id;  // for the log
  };
  void ReportLoss(const Loss& loss, int64_t now_ns);

  struct Quarantined {
    std::string request_id;  // of the request whose loss was reported last
    int64_t restricted_ns;   // its client is restricted for so long; 0: it is not
  };
  // The host could not be reached, or its health check failed. Returns the requests that are now
  // quarantined.
  std::vector<Quarantined> ReportDown(uint64_t host, int64_t now_ns);
  // The host responded to an exchange that started at `since_ns`: losses before that were not its death.
  void ReportUp(uint64_t host, int64_t since_ns, int64_t now_ns);
  // True if a loss waits for news of its worker. While it is false, no report is needed.
  bool has_pending() const { return has_pending_.load(std::memory_order_relaxed); }

  // The host completed it. What ends by that: its quarantine; the restriction of its client, too.
  enum class Lifted : uint8_t { kNothing, kQuarantine, kRestriction };
  Lifted ReportSuccess(const RequestDigest& digest, uint64_t host, int64_t now_ns);

  // It is quarantined, or was lost twice and no worker is known to have survived it.
  bool IsSuspected(const RequestDigest& digest, int64_t now_ns);

  // A restricted client's request enters, and leaves. kFree: the client is not restricted, and the
  // request does not leave. kBusy: another request of the client is inside, or its requests are rejected
  // for now.
  enum class Entry : uint8_t { kFree, kEntered, kBusy };
  bool restricts() const { return restrictions_.load(std::memory_order_relaxed) != 0; }
  Entry Enter(uint64_t client, int64_t now_ns);
  void Leave(uint64_t client);

  // For metrics.
  struct Counts {
    uint64_t quarantined = 0;  // requests, now
    uint64_t restricted = 0;   // clients, now
    uint64_t quarantines = 0;  // ever
    uint64_t losses = 0;       // ever
    uint64_t lifted = 0;       // quarantines that a success has ended, ever
  };
  Counts CountAll(int64_t now_ns) const;

  // What was lost with a host, until its fate is known.
  struct HostLosses {
    std::vector<RequestDigest> digests;  // an entry has no effect if it is not known any more, or not pending
    std::unordered_map<uint64_t, uint32_t> clients;  // their losses
    uint32_t count = 0;
    uint64_t youngest_client = 0;  // of the request that was sent last
    int64_t youngest_ns = INT64_MIN;
    int64_t last_ns = 0;  // of its last loss
  };

 private:
  struct DigestHash {
    size_t operator()(const RequestDigest& digest) const { return digest.low; }
  };
  struct Pending {
    uint64_t host;
    uint64_t client;  // 0: several
    int64_t since_ns;
    uint32_t count;  // equal requests
  };
  struct Served {
    uint64_t host;
    uint32_t count = 0;      // equal requests, since the host's last loss
    int64_t excused_ns = 0;  // of that loss, if it was innocent
  };
  struct Request {
    uint64_t bytes = 0;
    std::vector<Served> served;    // at most kMaxServedHosts
    std::vector<Pending> pending;  // one per host
    bool died = false;
    bool completed = false;            // an equal request, by any host, since the first loss
    uint64_t death_client = 0;         // of its first death; 0: several
    uint32_t death_count = 0;          // equal requests that had it
    uint64_t first_host = 0;           // of its first death
    std::array<uint64_t, 2> deaths{};  // its first and its last one (Death::number)
    std::string request_id;
    int64_t last_ns = 0;    // of its last loss or death
    int64_t until_ns = 0;   // of its quarantine; 0: it is not quarantined
    uint64_t offender = 0;  // the client that its quarantine is held against; 0: none
    std::list<RequestDigest>::iterator age;
  };
  // Reports of a host within pending_ns are of one death.
  struct Death {
    uint64_t number = 0;
    int64_t since_ns = 0;
  };
  using Requests = std::unordered_map<RequestDigest, Request, DigestHash>;

  static uint64_t LengthBit(uint64_t bytes) { return uint64_t{1} << (bytes * 0x9E3779B97F4A7C15u >> 58); }
  static constexpr uint32_t kProofs = 3;  // completions that a host needs
  static constexpr size_t kMaxServedHosts = 64;
  static constexpr size_t kLengthSlots = 4096;
  static size_t LengthSlot(uint64_t bytes) { return bytes * 0x9E3779B97F4A7C15u >> 52; }
  uint64_t suspected_lengths() const { return suspected_lengths_.load(std::memory_order_relaxed); }

  Request& FindOrAdd(const RequestDigest& digest, uint64_t bytes, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Erase(Requests::iterator found) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Expire(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Expired(const Request& request, int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Suspected(const Request& request, int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountLoss(const Loss& loss, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void DropLosses(uint64_t host, const HostLosses& losses, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ForgetOldHosts(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  Death& DeathOf(uint64_t host, int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // True: it is quarantined now.
  bool Die(Request& request, const Pending& loss, const Death& death, int64_t now_ns)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool IsExcused(Request& request, uint64_t host, int64_t now_ns) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FindSuspectedLengths(int64_t now_ns) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CountRestrictions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const QuarantineOptions options_;
  std::atomic<uint64_t> suspected_lengths_{0};  // bits of the body lengths of suspected requests
  // Remembered requests by a hash of their bodies' lengths; written with the mutex held.
  std::array<std::atomic<uint16_t>, kLengthSlots> known_lengths_{};
  std::atomic<uint32_t> restrictions_{0};  // clients with one
  std::atomic<bool> has_pending_{false};   // `pending_` is not empty

  mutable Mutex mutex_;  // leaf
  Requests requests_ ABSL_GUARDED_BY(mutex_);
  std::list<RequestDigest> by_age_ ABSL_GUARDED_BY(mutex_);                   // oldest first, by last_ns
  std::unordered_map<uint64_t, HostLosses> pending_ ABSL_GUARDED_BY(mutex_);  // by host
  std::unordered_map<uint64_t, Death> deaths_ ABSL_GUARDED_BY(mutex_);        // by host, of the last seconds
  uint64_t last_death_ ABSL_GUARDED_BY(mutex_) = 0;
  int64_t forget_ns_ ABSL_GUARDED_BY(mutex_) = 0;  // when the next hosts may be forgotten
  const std::unique_ptr<ClientSuspicion> clients_ ABSL_PT_GUARDED_BY(mutex_);
  uint64_t quarantines_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t losses_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t lifted_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace vllm_router
