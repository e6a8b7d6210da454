#include "routing/client_suspicion.h"

#include <algorithm>
#include <utility>

namespace vllm_router {

void ClientSuspicion::CountDeath(uint64_t death, const HostLosses& lost, int64_t now_ns) {
  const bool is_new = death != last_death_ && death > last_death_;
  last_death_ = std::max(last_death_, death);
  std::vector<std::pair<uint64_t, uint32_t>> clients(lost.clients.begin(), lost.clients.end());
  std::ranges::sort(clients);
  for (const auto& [id, count] : clients) {
    Client& client = FindOrAdd(id, death, now_ns);
    client.losses += count;
    if (client.last_death == death) continue;
    client.last_death = death;
    ++client.deaths;
    const double chance = static_cast<double>(count) / static_cast<double>(lost.count);
    if (chance < kGuiltyShare) {
      client.evidence *=
          id == lost.youngest_client ? kGuiltyShare / chance : (1 - kGuiltyShare) / (1 - chance);
    }
    if (now_ns >= client.until_ns) continue;
    // Not even the youngest of many: perhaps another client's request was the cause.
    const bool is_likely = chance >= kGuiltyShare || id == lost.youngest_client;
    const int64_t penalty = is_likely ? NextPenalty(&client) : options_.quarantine_ns;
    client.rejected_until_ns = std::max(client.rejected_until_ns, now_ns + penalty);
    if (is_likely) client.until_ns = std::max(client.until_ns, now_ns + options_.restriction_ns);
  }
  if (is_new && restricted_ != 0) {
    for (auto& [id, client] : clients_) {
      if (now_ns < client.until_ns && client.evidence < kEnough && WasElsewhere(client)) {
        client.until_ns = client.rejected_until_ns = 0;
      }
    }
  }
  FollowRestrictions(now_ns);
}

bool ClientSuspicion::Offend(uint64_t id, uint64_t death, const RequestDigest& digest, uint32_t losses) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return false;
  std::vector<Offence>& offences = found->second.offences;
  if (offences.size() >= kMaxOffences) offences.erase(offences.begin());
  offences.push_back({digest, death, losses});
  return true;
}

int64_t ClientSuspicion::Judge(uint64_t id, int64_t now_ns) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return 0;
  Client& client = found->second;
  if (CountOffences(client) < kOffences) return std::max<int64_t>(0, client.until_ns - now_ns);
  const bool stands_out = StandsOut(client);
  client.one_at_a_time =
      client.evidence >= kEnough || (stands_out && client.evidence >= 1 && CountOthers(client) == 0);
  if (now_ns < client.until_ns) return client.until_ns - now_ns;
  if (!client.one_at_a_time && !stands_out) return 0;
  client.until_ns = now_ns + NextPenalty(&client);
  FollowRestrictions(now_ns);
  return client.until_ns - now_ns;
}

bool ClientSuspicion::Retract(uint64_t id, const RequestDigest& digest, int64_t now_ns) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return false;
  Client& client = found->second;
  std::erase_if(client.offences, [&](const Offence& one) { return one.digest == digest; });
  if (now_ns >= client.until_ns || CountOffences(client) >= kOffences) return false;
  client.until_ns = client.rejected_until_ns = 0;
  FollowRestrictions(now_ns);
  return true;
}

void ClientSuspicion::RejectIfRestricted(uint64_t id, int64_t until_ns, int64_t now_ns) {
  const auto found = clients_.find(id);
  if (found == clients_.end() || now_ns >= found->second.until_ns) return;
  found->second.rejected_until_ns = std::max(found->second.rejected_until_ns, until_ns);
}

ClientSuspicion::Entry ClientSuspicion::Enter(uint64_t id, int64_t now_ns) {
  const auto found = clients_.find(id);
  if (found == clients_.end() || now_ns >= found->second.until_ns) return Entry::kFree;
  Client& client = found->second;
  if (now_ns < client.rejected_until_ns || (client.one_at_a_time && client.inside != 0)) return Entry::kBusy;
  ++client.inside;
  return Entry::kEntered;
}

void ClientSuspicion::Leave(uint64_t id) {
  const auto found = clients_.find(id);
  if (found != clients_.end() && found->second.inside != 0) --found->second.inside;
}

void ClientSuspicion::Expire(int64_t now_ns) {
  while (!by_age_.empty()) {
    const auto oldest = clients_.find(by_age_.front());
    const Client& client = oldest->second;
    if (now_ns - client.last_ns < options_.memory_ns || now_ns < client.until_ns) break;
    by_age_.erase(client.age);
    clients_.erase(oldest);
  }
  if (now_ns >= restricted_until_ns_) FollowRestrictions(now_ns);
}

// What is counted begins anew after memory_ns, so that evidence is of one time.
ClientSuspicion::Client& ClientSuspicion::FindOrAdd(uint64_t id, uint64_t death, int64_t now_ns) {
  const auto [found, is_new] = clients_.try_emplace(id);
  Client& client = found->second;
  if (is_new) {
    client.age = by_age_.insert(by_age_.end(), id);
    if (clients_.size() > options_.max_clients) {
      clients_.erase(by_age_.front());
      by_age_.pop_front();
    }
  } else {
    by_age_.splice(by_age_.end(), by_age_, client.age);
  }
  client.last_ns = now_ns;
  const bool over = now_ns - client.since_ns >= options_.memory_ns && now_ns >= client.until_ns;
  if (is_new || over) {
    client.since_ns = now_ns;
    client.first_death = death;
    client.deaths = client.losses = 0;
    client.evidence = 1;
    client.offences.clear();
  }
  return client;
}

size_t ClientSuspicion::CountOffences(const Client& client) {
  size_t count = 0;
  for (auto one = client.offences.begin(); one != client.offences.end(); ++one) {
    const bool is_first = std::none_of(
        client.offences.begin(), one, [&](const Offence& other) { return other.death == one->death; });
    count += is_first ? 1 : 0;
  }
  return count;
}

// More than a quarter of the deaths since its first one were without it.
bool ClientSuspicion::WasElsewhere(const Client& client) const {
  return 4 * client.deaths < 3 * (last_death_ - client.first_death + 1);
}

// Requests that were lost with it beside its offences, of which there is one for a death at most.
uint32_t ClientSuspicion::CountOthers(const Client& client) {
  uint32_t offending = 0;
  for (const Offence& offence : client.offences) offending += offence.losses;
  return client.losses - std::min({offending, client.deaths, client.losses});
}

bool ClientSuspicion::StandsOut(const Client& client) const {
  return client.deaths >= kDeaths && CountOthers(client) <= client.deaths && !WasElsewhere(client);
}

int64_t ClientSuspicion::NextPenalty(Client* client) const {
  const int64_t penalty = options_.quarantine_ns << std::min<uint32_t>(client->penalties++, 10);
  return std::min(penalty, options_.restriction_ns - options_.quarantine_ns);
}

uint32_t ClientSuspicion::CountRestricted(int64_t now_ns) const {
  return static_cast<uint32_t>(
      std::ranges::count_if(clients_, [&](const auto& one) { return now_ns < one.second.until_ns; }));
}

void ClientSuspicion::FollowRestrictions(int64_t now_ns) {
  restricted_ = CountRestricted(now_ns);
  restricted_until_ns_ = INT64_MAX;
  for (const auto& [id, client] : clients_) {
    if (now_ns < client.until_ns) restricted_until_ns_ = std::min(restricted_until_ns_, client.until_ns);
  }
}

}  // namespace vllm_router
