// ClientSuspicion: which clients send the requests that end workers, and when that is more than chance.
//
//   clients.CountDeath(death, lost, now)     a host died with these requests
//   clients.Offend(client, death, …)         one of them had died before: it is quarantined
//   clients.Judge(client, now)               for how long the client is restricted
//
// A request that died on two hosts is an offence of the client that alone sent it, unless any host has
// completed an equal one. The offences of one death count as one: given two deaths, chance decides how many
// requests were on both. A client with two offences and more is restricted by one of these:
//
//   evidence    Poison ends its worker soon after it has arrived, so among the requests that were lost
//               with a host it is the youngest. If the death has nothing to do with the requests, each of
//               n is the youngest with equal probability, one of a client that has m of them with
//               p = m / n. Poison is the youngest in half of the cases at least. So each death multiplies
//               the evidence by the likelihood ratio, 1/(2p) if the client has the youngest, else
//               1/(2(1-p)). By Ville's inequality it ever reaches 1000 for at most one innocent client in
//               1000, after however many deaths (Wald's sequential test).
//   it stands   Where little else is lost, little can be compared. The client was there at four deaths
//   out         and at three quarters of those since its first one, and beside one offending request for
//               each lost at most as many others.
//
// No request of a restricted client is sent to a second worker. When one more host dies with a request of
// it, all its requests are rejected for a minute. If that request was the youngest, or most of the lost were
// this client's, the next such time is twice as long, and the client stays restricted for ten minutes. With
// evidence, or if it lost nothing beside its offences and the evidence does not speak for it, the client has
// one request at a time: so it is with a client that sends one after the other, and loses little by that.
//
// Who has many requests under way, as an application's backend or a load balancer that hides its clients,
// loses many with each host: m is close to n and most are no offences, so crashes are no evidence against it.
//
// A restriction lasts as long as a quarantine, twice as long the next time, and so on. It ends early when
// completions lift the quarantines it rests on, or when hosts die without requests of the client.
//
// Time is passed in. Not thread-safe: RequestQuarantine calls it with its mutex held. At most max_clients
// are remembered, 0.3 KiB each, the oldest are dropped first; a death costs a walk over the restricted and
// over those that lost something.
//
// A. Wald, "Sequential Tests of Statistical Hypotheses", 1945.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <unordered_map>
#include <vector>

#include "routing/request_quarantine.h"

namespace vllm_router {

class ClientSuspicion {
 public:
  using HostLosses = RequestQuarantine::HostLosses;
  using Entry = RequestQuarantine::Entry;

  explicit ClientSuspicion(const QuarantineOptions& options) : options_(options) {}

  // `death` numbers the deaths of hosts from 1, in their order. A death may be counted in several parts.
  void CountDeath(uint64_t death, const HostLosses& lost, int64_t now_ns);
  // `losses`: requests equal to it that the client lost. False: the client is not remembered.
  bool Offend(uint64_t client, uint64_t death, const RequestDigest& digest, uint32_t losses);
  // For how long the client is restricted now; 0: it is not.
  int64_t Judge(uint64_t client, int64_t now_ns);
  // A completion has lifted the quarantine. True: a restriction of the client has ended by that.
  bool Retract(uint64_t client, const RequestDigest& digest, int64_t now_ns);

  // A restricted client's request was lost.
  void RejectIfRestricted(uint64_t client, int64_t until_ns, int64_t now_ns);
  Entry Enter(uint64_t client, int64_t now_ns);
  void Leave(uint64_t client);

  void Expire(int64_t now_ns);
  uint32_t restricted() const { return restricted_; }  // as of the last call that changes it
  uint32_t CountRestricted(int64_t now_ns) const;

 private:
  struct Offence {
    RequestDigest digest;
    uint64_t death;  // the second one
    uint32_t losses;
  };
  struct Client {
    int64_t last_ns = 0;       // of its last death
    int64_t since_ns = 0;      // of the first one that is counted below
    uint64_t first_death = 0;  // that one
    uint64_t last_death = 0;
    uint32_t deaths = 0;  // hosts that died with requests of it
    uint32_t losses = 0;  // requests that were lost with these
    double evidence = 1;
    std::vector<Offence> offences;  // at most kMaxOffences, oldest first
    uint32_t penalties = 0;
    int64_t until_ns = 0;  // of its restriction; 0: it has none
    int64_t rejected_until_ns = 0;
    bool one_at_a_time = false;
    uint32_t inside = 0;  // requests, since the restriction
    std::list<uint64_t>::iterator age;
  };

  static constexpr size_t kOffences = 2;  // that a restriction needs
  static constexpr size_t kMaxOffences = 8;
  static constexpr uint32_t kDeaths = 4;       // that a client that stands out needs
  static constexpr double kGuiltyShare = 0.5;  // of the deaths at which poison is the youngest, at least
  static constexpr double kEnough = 1000;      // the inverse of the rate of false alarms

  Client& FindOrAdd(uint64_t id, uint64_t death, int64_t now_ns);
  static size_t CountOffences(const Client& client);
  bool WasElsewhere(const Client& client) const;
  static uint32_t CountOthers(const Client& client);
  bool StandsOut(const Client& client) const;
  int64_t NextPenalty(Client* client) const;
  void FollowRestrictions(int64_t now_ns);

  const QuarantineOptions options_;
  std::unordered_map<uint64_t, Client> clients_;
  std::list<uint64_t> by_age_;  // oldest first, by last_ns
  uint64_t last_death_ = 0;
  uint32_t restricted_ = 0;
  int64_t restricted_until_ns_ = INT64_MAX;  // when the first restriction ends
};

}  // namespace vllm_router
