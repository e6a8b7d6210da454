// RequestQuarantine: requests that were in flight on workers when these died, and the clients that sent them. A request
// that crashes whatever serves it (a query of death) must not take down one worker after the other, be it by retries or
// because its client sends it again and again.
//
//   a connection was lost with the request on it
//        |
//      pending --the worker's next connect or health check fails--> a death of the request
//        |                                                              |
//        |  it responds, or nothing is heard for 10 s                   |  two deaths
//        v                                                              v
//      forgotten                                         quarantined for 60 s: rejected on arrival
//
// A host that has served an equal request to its end three times since the first loss does not die of it: its next loss is
// innocent, and so is the death that was counted there. So a prompt that many clients share is not rejected because workers
// are killed or restarted one after the other. What one host served says nothing of another (engines differ), and each
// innocent loss has to be earned anew, so that a request that ends its workers now and then is found. An equal request that was
// in flight when the quarantine began, and is served to its end, ends the quarantine; the deaths stay counted.
//
// All requests that a dying worker had are pending, the innocent ones too; they are innocent until a second worker dies
// under them. Where there are health checks, a request with two losses, pending or deaths, is rejected already, so that
// nothing depends on how fast they are. Ranks of one host die together and count as one; so do equal requests that one
// dying host had, whose losses come one after the other.
//
// A client with two quarantined requests within ten minutes is restricted for the next ten: one request at a time, and
// none of them is sent to a second worker after a loss; when one more host is lost with a request of it, all are rejected for ten
// seconds, and when it has died, for a minute. So changing the body each time does not help for long.
//
// Requests are known by a cryptographic digest of path and body, so nobody can make a request that stands for another's;
// no content is kept. Time is passed in. Thread-safe: one short mutex, which a request meets only while something is
// quarantined or restricted (active(), one relaxed load each); at most 10,000 requests and 10,000 clients are
// remembered, the oldest are dropped first (about 0.6 KiB each).
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
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/limits.h"

namespace vllm_router {

struct RequestDigest {
  uint64_t high = 0;
  uint64_t low = 0;
  friend bool operator==(const RequestDigest&, const RequestDigest&) = default;
};

// 128 bits of SHA-256. Cost: 0.2 us, and 0.7 ns per byte.
RequestDigest DigestOfRequest(std::string_view path, std::string_view body);

struct QuarantineOptions {
  int64_t pending_ns = 10'000'000'000;  // how long a loss waits to hear of its worker
  int64_t memory_ns =
      600'000'000'000;  // from one death of a request, or quarantine of a client's, to the next
  int64_t quarantine_ns = 60'000'000'000;    // how long a request is rejected
  int64_t restriction_ns = 600'000'000'000;  // how long a client is restricted
  size_t max_requests = kMaxSuspectedRequests;
  size_t max_clients = kMaxSuspectedClients;
  // Whether two losses make a suspect before it is known what became of the workers. Only where health checks soon tell.
  bool suspect_pending = true;
};

class RequestQuarantine {
 public:
  explicit RequestQuarantine(const QuarantineOptions& options = {}) : options_(options) {}
  RequestQuarantine(const RequestQuarantine&) = delete;
  RequestQuarantine& operator=(const RequestQuarantine&) = delete;

  // Anything may be rejected at present. While this is false, a request need not ask.
  bool active() const {
    return suspected_lengths() != 0 || restrictions_.load(std::memory_order_relaxed) != 0;
  }
  // Whether a body of so many bytes may be one that is rejected. False for nearly all, so few digests are computed.
  bool MayKnow(uint64_t body_bytes) const { return (suspected_lengths() & LengthBit(body_bytes)) != 0; }
  // Whether a success of a body of so many bytes may change anything. False for nearly all, as above.
  bool MayForget(uint64_t body_bytes) const {
    return known_lengths_[LengthSlot(body_bytes)].load(std::memory_order_relaxed) != 0;
  }

  struct Loss {
    RequestDigest digest;
    uint64_t bytes = 0;  // of the body
    uint64_t host = 0;   // of the worker; any number that names it
    uint64_t client = 0;
    std::string_view request_id;  // for the log
  };
  void ReportLoss(const Loss& loss, int64_t now_ns);

  struct Quarantined {
    std::string request_id;  // of the request whose loss was reported last
    bool client_restricted;  // its client now is
  };
  // The host could not be reached, or its health check failed. What that puts into quarantine.
  std::vector<Quarantined> ReportDown(uint64_t host, int64_t now_ns);
  // The host answered something that was begun at `since_ns`: losses before that were not its death.
  void ReportUp(uint64_t host, int64_t since_ns, int64_t now_ns);
  // Some loss waits to hear of its worker. While this is false, nothing need be reported.
  bool has_pending() const { return has_pending_.load(std::memory_order_relaxed); }

  // The host served it to its end. True: it was quarantined until now.
  bool ReportSuccess(const RequestDigest& digest, uint64_t host, int64_t now_ns);

  // It is quarantined, or was lost twice and no worker is known to have survived it.
  bool IsSuspected(const RequestDigest& digest, int64_t now_ns);

  // A restricted client's request enters, and leaves. kFree: it is not restricted, and does not leave. kBusy: another one of it
  // is inside, or it is rejected for now.
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

 private:
  struct DigestHash {
    size_t operator()(const RequestDigest& digest) const { return digest.low; }
  };
  struct Pending {
    uint64_t host;
    uint64_t client;  // 0: several
    int64_t since_ns;
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
    bool died = false;             // once
    uint64_t death_client = 0;     // of that death; 0: several
    uint64_t death_host = 0;
    int64_t death_ns = 0;
    std::string request_id;
    int64_t last_ns = 0;   // of its last loss or death
    int64_t until_ns = 0;  // of its quarantine; 0: it is not quarantined
    std::list<RequestDigest>::iterator age;
  };
  struct Client {
    int64_t last_ns = 0;   // of its last quarantined request
    int64_t until_ns = 0;  // of its restriction; 0: it has none
    int64_t rejected_until_ns = 0;
    bool busy = false;
    std::list<uint64_t>::iterator age;
  };
  using Requests = std::unordered_map<RequestDigest, Request, DigestHash>;

  static uint64_t LengthBit(uint64_t bytes) { return uint64_t{1} << (bytes * 0x9E3779B97F4A7C15u >> 58); }
  static constexpr uint32_t kProofs = 3;  // times that a host has to serve it
  static constexpr size_t kMaxServedHosts = 64;
  static constexpr size_t kLengthSlots = 4096;
  static size_t LengthSlot(uint64_t bytes) { return bytes * 0x9E3779B97F4A7C15u >> 52; }
  uint64_t suspected_lengths() const { return suspected_lengths_.load(std::memory_order_relaxed); }

  // All with the mutex held.
  Request& FindOrAdd(const RequestDigest& digest, uint64_t bytes, int64_t now_ns);
  void Erase(Requests::iterator found);
  void Expire(int64_t now_ns);
  bool Expired(const Request& request, int64_t now_ns) const;
  bool Suspected(const Request& request, int64_t now_ns) const;
  std::vector<RequestDigest> TakePendingOf(uint64_t host);
  bool Die(Request& request, const Pending& loss, int64_t now_ns);  // true: it is quarantined now
  bool Offend(uint64_t client, int64_t now_ns);                     // true: it is restricted
  void RejectIfRestricted(uint64_t client, int64_t until_ns, int64_t now_ns);
  bool IsExcused(Request& request, uint64_t host, int64_t now_ns) const;
  void FindSuspectedLengths(int64_t now_ns);
  void CountRestrictions(int64_t now_ns);

  const QuarantineOptions options_;
  std::atomic<uint64_t> suspected_lengths_{0};  // bits of the body lengths of suspected requests
  // Remembered requests by a hash of their bodies' lengths; written with the mutex held.
  std::array<std::atomic<uint16_t>, kLengthSlots> known_lengths_{};
  std::atomic<uint32_t> restrictions_{0};  // clients with one
  std::atomic<bool> has_pending_{false};   // `pending_` has any

  mutable std::mutex mutex_;  // leaf; guards what follows
  Requests requests_;
  std::list<RequestDigest> by_age_;  // oldest first, by last_ns
  // By host. Of a digest that is not known any more, or not pending there, an entry means nothing.
  std::unordered_map<uint64_t, std::vector<RequestDigest>> pending_;
  std::unordered_map<uint64_t, Client> clients_;
  std::list<uint64_t> clients_by_age_;  // oldest first, by last_ns
  uint64_t quarantines_ = 0;
  uint64_t losses_ = 0;
  uint64_t lifted_ = 0;
};

}  // namespace vllm_router
