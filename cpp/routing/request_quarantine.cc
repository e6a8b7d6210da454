#include "routing/request_quarantine.h"

#include <algorithm>
#include <utility>

#include "hashing/sha256.h"

namespace vllm_router {

RequestDigest DigestOfRequest(std::string_view path, std::string_view body) {
  // A path has no NUL, so it cannot run into the body.
  const Digest256 digest = Sha256({path, std::string_view("\0", 1), body});
  return {DigestWord(digest, 0), DigestWord(digest, 8)};
}

void RequestQuarantine::ReportLoss(const Loss& loss, int64_t now_ns) {
  MutexLock lock(mutex_);
  ++losses_;
  Expire(now_ns);
  Request& request = FindOrAdd(loss.digest, loss.bytes, now_ns);
  if (request.until_ns != 0) return;
  if (request.died && loss.host == request.death_host && now_ns - request.death_ns < options_.pending_ns) {
    if (loss.client != request.death_client) request.death_client = 0;  // an equal request had the same death
    return;
  }
  if (IsExcused(request, loss.host, now_ns)) return;
  RejectIfRestricted(loss.client, now_ns + options_.pending_ns, now_ns);
  request.request_id = loss.request_id;
  const auto known = std::ranges::find(request.pending, loss.host, &Pending::host);
  if (known != request.pending.end()) {
    known->since_ns = now_ns;
    if (known->client != loss.client) known->client = 0;
  } else {
    request.pending.push_back({loss.host, loss.client, now_ns});
    std::vector<RequestDigest>& at_host = pending_[loss.host];
    if (at_host.size() >= 2 * options_.max_requests) at_host.erase(at_host.begin(), at_host.end() - 1);
    at_host.push_back(loss.digest);
    has_pending_.store(true, std::memory_order_relaxed);
  }
  if (Suspected(request, now_ns)) {
    suspected_lengths_.fetch_or(LengthBit(request.bytes), std::memory_order_relaxed);
  }
}

std::vector<RequestQuarantine::Quarantined> RequestQuarantine::ReportDown(uint64_t host, int64_t now_ns) {
  std::vector<Quarantined> quarantined;
  if (!has_pending()) return quarantined;
  MutexLock lock(mutex_);
  std::vector<std::pair<Pending, RequestDigest>> losses;
  for (const RequestDigest& digest : TakePendingOf(host)) {
    const auto found = requests_.find(digest);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    const auto pending = std::ranges::find(request.pending, host, &Pending::host);
    if (pending == request.pending.end()) continue;
    losses.emplace_back(*pending, digest);
    request.pending.erase(pending);
  }
  std::ranges::stable_sort(losses, {}, [](const auto& one) { return one.first.since_ns; });
  for (const auto& [loss, digest] : losses) {
    const auto found = requests_.find(digest);
    Request& request = found->second;
    if (now_ns - loss.since_ns >= options_.pending_ns) {
      if (Expired(request, now_ns)) Erase(found);
      continue;
    }
    RejectIfRestricted(loss.client, now_ns + options_.quarantine_ns, now_ns);
    if (!Die(request, loss, now_ns)) continue;
    const bool same_client = request.death_client == loss.client && loss.client != 0;
    quarantined.push_back(
        {.request_id = request.request_id, .client_restricted = same_client && Offend(loss.client, now_ns)});
  }
  FindSuspectedLengths(now_ns);
  return quarantined;
}

void RequestQuarantine::ReportUp(uint64_t host, int64_t since_ns, int64_t now_ns) {
  if (!has_pending()) return;
  MutexLock lock(mutex_);
  for (const RequestDigest& digest : TakePendingOf(host)) {
    const auto found = requests_.find(digest);
    if (found == requests_.end()) continue;
    Request& request = found->second;
    const auto pending = std::ranges::find(request.pending, host, &Pending::host);
    if (pending == request.pending.end()) continue;
    if (pending->since_ns >= since_ns) {  // lost after the completed exchange had started
      pending_[host].push_back(digest);
      continue;
    }
    request.pending.erase(pending);
    if (Expired(request, now_ns)) Erase(found);
  }
  has_pending_.store(!pending_.empty(), std::memory_order_relaxed);
  FindSuspectedLengths(now_ns);
}

bool RequestQuarantine::ReportSuccess(const RequestDigest& digest, uint64_t host, int64_t now_ns) {
  MutexLock lock(mutex_);
  Expire(now_ns);
  const auto found = requests_.find(digest);
  if (found == requests_.end()) return false;
  Request& request = found->second;
  if (Expired(request, now_ns)) {
    Erase(found);
    return false;
  }
  const bool suspected = Suspected(request, now_ns);
  auto served = std::ranges::find(request.served, host, &Served::host);
  if (served == request.served.end()) {
    if (request.served.size() >= kMaxServedHosts) request.served.erase(request.served.begin());
    served = request.served.insert(request.served.end(), {.host = host});
  }
  ++served->count;
  std::erase_if(request.pending, [host](const Pending& one) { return one.host == host; });
  if (served->count >= kProofs && request.death_host == host) request.died = false;
  const bool was_quarantined = request.until_ns != 0 && suspected;
  if (was_quarantined) {
    ++lifted_;
    request.until_ns = 0;
  }
  if (Expired(request, now_ns)) Erase(found);
  if (suspected) FindSuspectedLengths(now_ns);
  return was_quarantined;
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
  const auto found = clients_.find(client);
  if (found == clients_.end() || now_ns >= found->second.until_ns) return Entry::kFree;
  Client& known = found->second;
  if (known.busy || now_ns < known.rejected_until_ns) return Entry::kBusy;
  known.busy = true;
  return Entry::kEntered;
}

void RequestQuarantine::Leave(uint64_t client) {
  MutexLock lock(mutex_);
  const auto found = clients_.find(client);
  if (found != clients_.end()) found->second.busy = false;
}

RequestQuarantine::Counts RequestQuarantine::CountAll(int64_t now_ns) const {
  MutexLock lock(mutex_);
  Counts counts{.quarantines = quarantines_, .losses = losses_, .lifted = lifted_};
  for (const auto& [digest, request] : requests_) counts.quarantined += now_ns < request.until_ns ? 1 : 0;
  for (const auto& [id, client] : clients_) counts.restricted += now_ns < client.until_ns ? 1 : 0;
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
  const size_t clients = clients_.size();
  while (!clients_by_age_.empty()) {
    const auto oldest = clients_.find(clients_by_age_.front());
    const Client& client = oldest->second;
    if (now_ns - client.last_ns < options_.memory_ns || now_ns < client.until_ns) break;
    clients_by_age_.erase(client.age);
    clients_.erase(oldest);
  }
  if (clients_.size() != clients) CountRestrictions(now_ns);
}

bool RequestQuarantine::Suspected(const Request& request, int64_t now_ns) const {
  if (request.until_ns != 0) return now_ns < request.until_ns;
  if (!options_.suspect_pending) return false;
  const bool died = request.died && now_ns - request.last_ns < options_.memory_ns;
  const auto pending = std::ranges::count_if(
      request.pending, [&](const Pending& one) { return now_ns - one.since_ns < options_.pending_ns; });
  return pending + (died ? 1 : 0) >= 2;
}

std::vector<RequestDigest> RequestQuarantine::TakePendingOf(uint64_t host) {
  const auto found = pending_.find(host);
  if (found == pending_.end()) return {};
  std::vector<RequestDigest> digests = std::move(found->second);
  pending_.erase(found);
  has_pending_.store(!pending_.empty(), std::memory_order_relaxed);
  return digests;
}

bool RequestQuarantine::Die(Request& request, const Pending& loss, int64_t now_ns) {
  const bool second = request.died && now_ns - request.last_ns < options_.memory_ns;
  request.last_ns = now_ns;
  by_age_.splice(by_age_.end(), by_age_, request.age);
  if (!second) {
    request.died = true;
    request.death_client = loss.client;
    request.death_host = loss.host;
    request.death_ns = now_ns;
    return false;
  }
  request.until_ns = now_ns + options_.quarantine_ns;
  request.pending.clear();
  ++quarantines_;
  return true;
}

bool RequestQuarantine::Offend(uint64_t client, int64_t now_ns) {
  const auto [found, is_new] = clients_.try_emplace(client);
  Client& known = found->second;
  if (is_new) {
    known.age = clients_by_age_.insert(clients_by_age_.end(), client);
    if (clients_.size() > options_.max_clients) {
      clients_.erase(clients_by_age_.front());
      clients_by_age_.pop_front();
    }
  } else {
    clients_by_age_.splice(clients_by_age_.end(), clients_by_age_, known.age);
    if (now_ns - known.last_ns < options_.memory_ns) known.until_ns = now_ns + options_.restriction_ns;
  }
  known.last_ns = now_ns;
  CountRestrictions(now_ns);
  return now_ns < known.until_ns;
}

// A restricted client's requests still crash workers.
void RequestQuarantine::RejectIfRestricted(uint64_t client, int64_t until_ns, int64_t now_ns) {
  const auto found = clients_.find(client);
  if (found == clients_.end() || now_ns >= found->second.until_ns) return;
  found->second.rejected_until_ns = std::max(found->second.rejected_until_ns, until_ns);
}

void RequestQuarantine::FindSuspectedLengths(int64_t now_ns) {
  uint64_t bits = 0;
  for (const auto& [digest, request] : requests_) {
    if (Suspected(request, now_ns)) bits |= LengthBit(request.bytes);
  }
  suspected_lengths_.store(bits, std::memory_order_relaxed);
}

void RequestQuarantine::CountRestrictions(int64_t now_ns) {
  uint32_t restricted = 0;
  for (const auto& [id, client] : clients_) restricted += now_ns < client.until_ns ? 1 : 0;
  restrictions_.store(restricted, std::memory_order_relaxed);
}

}  // namespace vllm_router
