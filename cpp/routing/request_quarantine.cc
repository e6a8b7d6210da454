#include "routing/request_quarantine.h"

#include <algorithm>
#include <utility>

#include "hashing/sha256.h"
#include "routing/client_suspicion.h"

namespace vllm_router {

RequestDigest DigestOfRequest(std::string_view path, std::string_view body) {
  // A path has no NUL, so it cannot run into the body.
  const Digest256 digest = Sha256({path, std::string_view("\0", 1), body});
  return {DigestWord(digest, 0), DigestWord(digest, 8)};
}

RequestQuarantine::RequestQuarantine(const QuarantineOptions& options)
    : options_(options), clients_(std::make_unique<ClientSuspicion>(options)) {}

RequestQuarantine::~RequestQuarantine() = default;

void RequestQuarantine::ReportLoss(const Loss& loss, int64_t now_ns) {
  MutexLock lock(mutex_);
  ++losses_;
  Expire(now_ns);
  CountLoss(loss, now_ns);
  Request& request = FindOrAdd(loss.digest, loss.bytes, now_ns);
  if (request.until_ns != 0) return;
  const auto death = deaths_.find(loss.host);
  const bool is_over = death != deaths_.end() && now_ns - death->second.since_ns < options_.pending_ns;
  if (request.died && is_over && std::ranges::count(request.deaths, death->second.number) != 0) {
    // An equal request had the same death.
    if (death->second.number != request.deaths.front()) return;
    ++request.death_count;
    if (loss.client != request.death_client) request.death_client = 0;
    return;
  }
  if (IsExcused(request, loss.host, now_ns)) return;
  clients_->RejectIfRestricted(loss.client, now_ns + options_.pending_ns, now_ns);
  request.request_id = loss.request_id;
  const auto known = std::ranges::find(request.pending, loss.host, &Pending::host);
  const Pending pending{loss.host, loss.client, now_ns, 1};
  if (known == request.pending.end()) {
    request.pending.push_back(pending);
    std::vector<RequestDigest>& at_host = pending_[loss.host].digests;
    if (at_host.size() >= 2 * options_.max_requests) at_host.erase(at_host.begin(), at_host.end() - 1);
    at_host.push_back(loss.digest);
  } else if (now_ns - known->since_ns >= options_.pending_ns) {
    *known = pending;
  } else {
    known->since_ns = now_ns;
    ++known->count;
    if (known->client != loss.client) known->client = 0;
  }
  if (Suspected(request, now_ns)) {
    suspected_lengths_.fetch_or(LengthBit(request.bytes), std::memory_order_relaxed);
  }
}

// Whether or not the loss is evidence against the request, it shows what the client had on the host.
void RequestQuarantine::CountLoss(const Loss& loss, int64_t now_ns) {
  ForgetOldHosts(now_ns);
  if (const auto old = pending_.find(loss.host);
      old != pending_.end() && now_ns - old->second.last_ns >= options_.pending_ns) {
    DropLosses(loss.host, old->second, now_ns);
    pending_.erase(old);
  }
  HostLosses& losses = pending_[loss.host];
  ++losses.count;
  losses.last_ns = now_ns;
  if (loss.client != 0 &&
      (losses.clients.contains(loss.client) || losses.clients.size() < options_.max_clients)) {
    ++losses.clients[loss.client];
  }
  if (loss.sent_ns > losses.youngest_ns) {
    losses.youngest_ns = loss.sent_ns;
    losses.youngest_client = loss.client;
  }
  has_pending_.store(true, std::memory_order_relaxed);
}

// Of a worker that has left the fleet, nobody reports.
void RequestQuarantine::ForgetOldHosts(int64_t now_ns) {
  if (now_ns < forget_ns_) return;
  forget_ns_ = now_ns + options_.pending_ns;
  for (auto& [host, losses] : pending_) {
    if (now_ns - losses.last_ns >= options_.pending_ns) DropLosses(host, losses, now_ns);
  }
  std::erase_if(
      pending_, [&](const auto& one) { return now_ns - one.second.last_ns >= options_.pending_ns; });
  std::erase_if(
      deaths_, [&](const auto& one) { return now_ns - one.second.since_ns >= options_.pending_ns; });
}

void RequestQuarantine::DropLosses(uint64_t host, const HostLosses& losses, int64_t now_ns) {
  for (const RequestDigest& digest : losses.digests) {
    const auto found = requests_.find(digest);
    if (found == requests_.end()) continue;
    std::erase_if(found->second.pending, [host](const Pending& one) { return one.host == host; });
    if (Expired(found->second, now_ns)) Erase(found);
  }
}

std::vector<RequestQuarantine::Quarantined> RequestQuarantine::ReportDown(uint64_t host, int64_t now_ns) {
  std::vector<Quarantined> quarantined;
  if (!has_pending()) return quarantined;
  MutexLock lock(mutex_);
  const auto at_host = pending_.find(host);
  if (at_host == pending_.end()) return quarantined;
  const HostLosses lost = std::move(at_host->second);
  pending_.erase(at_host);
  has_pending_.store(!pending_.empty(), std::memory_order_relaxed);
  if (now_ns - lost.last_ns >= options_.pending_ns) {
    DropLosses(host, lost, now_ns);
    return quarantined;
  }
  const Death death = DeathOf(host, now_ns);
  clients_->CountDeath(death.number, lost, now_ns);

  std::vector<std::pair<Pending, RequestDigest>> losses;
  for (const RequestDigest& digest : lost.digests) {
    const auto found = requests_.find(digest);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    const auto pending = std::ranges::find(request.pending, host, &Pending::host);
    if (pending == request.pending.end()) continue;
    losses.emplace_back(*pending, digest);
    request.pending.erase(pending);
  }
  std::ranges::stable_sort(losses, {}, [](const auto& one) { return one.first.since_ns; });
  std::vector<uint64_t> clients;  // of those that are quarantined now
  for (const auto& [loss, digest] : losses) {
    const auto found = requests_.find(digest);
    Request& request = found->second;
    if (now_ns - loss.since_ns >= options_.pending_ns) {
      if (Expired(request, now_ns)) Erase(found);
      continue;
    }
    if (!Die(request, loss, death, now_ns)) continue;
    const bool same_client = request.death_client == loss.client && loss.client != 0;
    if (same_client && !request.completed &&
        clients_->Offend(loss.client, death.number, digest, request.death_count + loss.count)) {
      request.offender = loss.client;
    }
    clients.push_back(request.offender);
    quarantined.push_back({.request_id = request.request_id, .restricted_ns = 0});
  }
  for (size_t i = 0; i < clients.size(); ++i)
    quarantined[i].restricted_ns = clients_->Judge(clients[i], now_ns);
  CountRestrictions();
  FindSuspectedLengths(now_ns);
  return quarantined;
}

void RequestQuarantine::ReportUp(uint64_t host, int64_t since_ns, int64_t now_ns) {
  if (!has_pending()) return;
  MutexLock lock(mutex_);
  const auto at_host = pending_.find(host);
  if (at_host == pending_.end()) return;
  std::vector<RequestDigest> later;  // lost after the completed exchange had started
  for (const RequestDigest& digest : at_host->second.digests) {
    const auto found = requests_.find(digest);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    const auto pending = std::ranges::find(request.pending, host, &Pending::host);
    if (pending == request.pending.end()) continue;
    if (pending->since_ns >= since_ns) {
      later.push_back(digest);
      continue;
    }
    request.pending.erase(pending);
    if (Expired(request, now_ns)) Erase(found);
  }
  at_host->second.digests = std::move(later);
  if (at_host->second.last_ns < since_ns) pending_.erase(at_host);
  has_pending_.store(!pending_.empty(), std::memory_order_relaxed);
  FindSuspectedLengths(now_ns);
}

RequestQuarantine::Lifted RequestQuarantine::ReportSuccess(
    const RequestDigest& digest, uint64_t host, int64_t now_ns) {
  MutexLock lock(mutex_);
  Expire(now_ns);
  const auto found = requests_.find(digest);
  if (found == requests_.end()) return Lifted::kNothing;
  Request& request = found->second;
  if (Expired(request, now_ns)) {
    Erase(found);
    return Lifted::kNothing;
  }
  request.completed = true;
  const bool suspected = Suspected(request, now_ns);
  auto served = std::ranges::find(request.served, host, &Served::host);
  if (served == request.served.end()) {
    if (request.served.size() >= kMaxServedHosts) request.served.erase(request.served.begin());
    served = request.served.insert(request.served.end(), {.host = host});
  }
  ++served->count;
  std::erase_if(request.pending, [host](const Pending& one) { return one.host == host; });
  if (served->count >= kProofs && request.first_host == host) request.died = false;
  Lifted lifted = Lifted::kNothing;
  if (request.until_ns != 0 && suspected) {
    ++lifted_;
    request.until_ns = 0;
    lifted = clients_->Retract(request.offender, digest, now_ns) ? Lifted::kRestriction : Lifted::kQuarantine;
    CountRestrictions();
  }
  if (Expired(request, now_ns)) Erase(found);
  if (suspected) FindSuspectedLengths(now_ns);
  return lifted;
}

// The host has served this request before, so this loss is no evidence against it; equal requests that
// the host had are lost along with it.
bool RequestQuarantine::IsExcused(Request& request, uint64_t host, int64_t now_ns) const {
  const auto served = std::ranges::find(request.served, host, &Served::host);
  if (served == request.served.end()) return false;
  const bool again = served->excused_ns != 0 && now_ns - served->excused_ns < options_.pending_ns;
  const bool excused = again || served->count >= kProofs;
  if (excused && !again) served->excused_ns = now_ns;
  served->count = 0;
  return excused;
}

bool RequestQuarantine::IsSuspected(const RequestDigest& digest, int64_t now_ns) {
  MutexLock lock(mutex_);
  Expire(now_ns);
  const auto found = requests_.find(digest);
  return found != requests_.end() && Suspected(found->second, now_ns);
}

RequestQuarantine::Entry RequestQuarantine::Enter(uint64_t client, int64_t now_ns) {
  MutexLock lock(mutex_);
  Expire(now_ns);
  return clients_->Enter(client, now_ns);
}

void RequestQuarantine::Leave(uint64_t client) {
  MutexLock lock(mutex_);
  clients_->Leave(client);
}

RequestQuarantine::Counts RequestQuarantine::CountAll(int64_t now_ns) const {
  MutexLock lock(mutex_);
  Counts counts{
      .restricted = clients_->CountRestricted(now_ns),
      .quarantines = quarantines_,
      .losses = losses_,
      .lifted = lifted_};
  for (const auto& [digest, request] : requests_) counts.quarantined += now_ns < request.until_ns ? 1 : 0;
  return counts;
}

// It is the newest entry afterwards, and a new one if the old one had expired.
RequestQuarantine::Request& RequestQuarantine::FindOrAdd(
    const RequestDigest& digest, uint64_t bytes, int64_t now_ns) {
  auto found = requests_.find(digest);
  if (found != requests_.end() && Expired(found->second, now_ns)) {
    Erase(found);
    found = requests_.end();
  }
  if (found == requests_.end()) {
    if (requests_.size() >= options_.max_requests) Erase(requests_.find(by_age_.front()));
    found = requests_.try_emplace(digest).first;
    found->second.age = by_age_.insert(by_age_.end(), digest);
    found->second.bytes = bytes;
    known_lengths_[LengthSlot(bytes)].fetch_add(1, std::memory_order_relaxed);
  }
  Request& request = found->second;
  by_age_.splice(by_age_.end(), by_age_, request.age);
  request.last_ns = now_ns;
  return request;
}

void RequestQuarantine::Erase(Requests::iterator found) {
  by_age_.erase(found->second.age);
  known_lengths_[LengthSlot(found->second.bytes)].fetch_sub(1, std::memory_order_relaxed);
  requests_.erase(found);
}

// None of its recorded data matters any more.
bool RequestQuarantine::Expired(const Request& request, int64_t now_ns) const {
  if (request.until_ns != 0) return now_ns >= request.until_ns;
  const bool died = request.died && now_ns - request.last_ns < options_.memory_ns;
  const bool pending = std::ranges::any_of(
      request.pending, [&](const Pending& one) { return now_ns - one.since_ns < options_.pending_ns; });
  return !died && !pending;
}

void RequestQuarantine::Expire(int64_t now_ns) {
  bool erased = false;
  while (!by_age_.empty()) {
    const auto oldest = requests_.find(by_age_.front());
    if (!Expired(oldest->second, now_ns)) break;
    Erase(oldest);
    erased = true;
  }
  if (erased) FindSuspectedLengths(now_ns);
  clients_->Expire(now_ns);
  CountRestrictions();
}

bool RequestQuarantine::Suspected(const Request& request, int64_t now_ns) const {
  if (request.until_ns != 0) return now_ns < request.until_ns;
  if (!options_.suspect_pending) return false;
  const bool died = request.died && now_ns - request.last_ns < options_.memory_ns;
  const auto pending = std::ranges::count_if(
      request.pending, [&](const Pending& one) { return now_ns - one.since_ns < options_.pending_ns; });
  return pending + (died ? 1 : 0) >= 2;
}

RequestQuarantine::Death& RequestQuarantine::DeathOf(uint64_t host, int64_t now_ns) {
  const auto [found, is_new] = deaths_.try_emplace(host);
  Death& death = found->second;
  if (is_new || now_ns - death.since_ns >= options_.pending_ns) death = {++last_death_, now_ns};
  return death;
}

bool RequestQuarantine::Die(Request& request, const Pending& loss, const Death& death, int64_t now_ns) {
  const bool second = request.died && now_ns - request.last_ns < options_.memory_ns;
  request.last_ns = now_ns;
  by_age_.splice(by_age_.end(), by_age_, request.age);
  if (!second) {
    request.died = true;
    request.death_client = loss.client;
    request.death_count = loss.count;
    request.first_host = loss.host;
    request.deaths = {death.number};
    return false;
  }
  request.deaths.back() = death.number;
  request.until_ns = now_ns + options_.quarantine_ns;
  request.offender = 0;
  request.pending.clear();
  ++quarantines_;
  return true;
}

void RequestQuarantine::FindSuspectedLengths(int64_t now_ns) {
  uint64_t bits = 0;
  for (const auto& [digest, request] : requests_) {
    if (Suspected(request, now_ns)) bits |= LengthBit(request.bytes);
  }
  suspected_lengths_.store(bits, std::memory_order_relaxed);
}

void RequestQuarantine::CountRestrictions() {
  restrictions_.store(clients_->restricted(), std::memory_order_relaxed);
}

}  // namespace vllm_router
