#include "peer_sync/peer_table.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/limits.h"
#include "base/time_units.h"

namespace vllm_router {
namespace {

int64_t LiveNanos(const PeerTable::Peer& peer) {
  return std::max(PeerTable::kLiveNanos, 3 * int64_t{peer.interval_ms} * kNanosPerMs);
}

// Of its loads at this age.
double ShareAt(const PeerTable::Peer& peer, int64_t now_ns) {
  switch (peer.StateAt(now_ns)) {
    case PeerTable::State::kLive:
      return 1;
    case PeerTable::State::kLate: {
      const int64_t late = now_ns - peer.heard_ns - LiveNanos(peer);
      return std::exp2(-static_cast<double>(late) / static_cast<double>(PeerTable::kDecayNanos));
    }
    case PeerTable::State::kGone:
      return 0;
  }
  return 0;
}

// For logs, metrics and JSON, whatever the peer says.
std::string Printable(std::string text) {
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~' || c == '"' || c == '\\'; }, '?');
  return text;
}

void AddShare(const LoadCounts& load, double share, LoadCounts* sum) {
  // No worker can hold so much, whatever thousands of names say.
  static constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  const auto add = [share](int64_t count, int64_t* to) {
    *to = std::min<int64_t>(kMost, *to + std::llround(share * static_cast<double>(count)));
  };
  add(load.requests, &sum->requests);
  add(load.waiting, &sum->waiting);
  add(load.queued_prefill, &sum->queued_prefill);
  add(load.expected_output, &sum->expected_output);
  add(load.context, &sum->context);
}

}  // namespace

PeerTable::State PeerTable::Peer::StateAt(int64_t now_ns) const {
  const int64_t age = now_ns - heard_ns;
  if (left || age > std::max(kGoneNanos, 2 * LiveNanos(*this))) return State::kGone;
  return age <= LiveNanos(*this) ? State::kLive : State::kLate;
}

const std::shared_ptr<Worker>* PeerTable::Peer::Find(uint32_t index) const {
  const auto named = names.find(index);
  return named != names.end() && named->second.worker != nullptr ? &named->second.worker : nullptr;
}

PeerTable::~PeerTable() {
  for (auto& [url, own] : workers_) Write({}, &own);
}

void PeerTable::Write(const LoadCounts& counts, Own* own) {
  own->worker->load.SetPeers(counts, own->written);
  own->written = counts;
}

void PeerTable::SetFleet(const FleetView& fleet) {
  absl::flat_hash_map<std::string, Own> next;
  for (const FleetView::Member& member : fleet.members()) {
    const auto known = workers_.find(member.worker->url.url);
    const bool stays = known != workers_.end() && known->second.worker == member.worker;
    next[member.worker->url.url] = stays ? known->second : Own{.worker = member.worker, .written = {}};
    if (stays) workers_.erase(known);
  }
  for (auto& [url, own] : workers_) Write({}, &own);
  workers_ = std::move(next);
  for (auto& [router, peer] : peers_) {
    for (auto& [index, named] : peer.names) Resolve(&named);
  }
}

void PeerTable::Resolve(Named* named) const {
  named->worker = nullptr;
  const auto found = workers_.find(named->url);
  if (found == workers_.end()) return;
  if (found->second.worker->MayBe(named->incarnation)) named->worker = found->second.worker;
}

// In place of the peer that is gone for longest.
bool PeerTable::MakeRoom(int64_t now_ns) {
  if (peers_.size() < kMaxPeers) return true;
  auto oldest = peers_.end();
  for (auto peer = peers_.begin(); peer != peers_.end(); ++peer) {
    if (peer->second.StateAt(now_ns) != State::kGone) continue;
    if (oldest == peers_.end() || peer->second.heard_ns < oldest->second.heard_ns) oldest = peer;
  }
  if (oldest == peers_.end()) return false;
  peers_.erase(oldest);
  return true;
}

PeerTable::Peer* PeerTable::Hear(
    const PeerFrame& frame, uint64_t own_router, int64_t now_ns, bool* repeated, bool may_be_forged) {
  *repeated = false;
  auto place = peers_.find(frame.router);
  if (place == peers_.end()) {
    if (!MakeRoom(now_ns)) return nullptr;
    place = peers_.try_emplace(frame.router).first;
    place->second.router = frame.router;
    place->second.first_heard_ns = now_ns;
    place->second.sequence = frame.sequence == 0 ? 0 : frame.sequence - 1;
  }
  Peer& peer = place->second;
  if (frame.sequence > peer.sequence && frame.sequence - peer.sequence > kMaxGap) {
    if (may_be_forged) return nullptr;
    peer.sequence = frame.sequence - 1;
  } else if (may_be_forged && peer.sequence > frame.sequence && peer.sequence - frame.sequence > kMaxGap) {
    peer.sequence = frame.sequence == 0 ? 0 : frame.sequence - 1;
  }
  if (frame.sequence <= peer.sequence) {  // its decisions may be news, its loads are not
    *repeated = frame.sequence == peer.sequence;
    return &peer;
  }
  peer.gaps += frame.sequence - peer.sequence - 1;
  peer.sequence = frame.sequence;
  peer.heard_ns = now_ns;
  peer.interval_ms = std::min(frame.interval_ms, kMaxIntervalMs);
  peer.fingerprint = frame.fingerprint;
  peer.left = peer.left || frame.bye;
  if (frame.full) ++peer.full_frames;
  if (!frame.about.empty()) {
    peer.name = Printable(frame.about.front().name);
    peer.version = Printable(frame.about.front().version);
  }
  for (const PeerFrame::Seen& seen : frame.seen) {
    if (seen.router == own_router) peer.seen = std::max(peer.seen, seen.sequence);
  }

  size_t all_names = 0;
  for (const auto& [router, other] : peers_) all_names += other.names.size();
  for (const PeerFrame::Name& name : frame.names) {
    if (name.url.size() > kMaxUrlBytes) continue;
    auto known = peer.names.find(name.index);
    if (known == peer.names.end()) {
      if (peer.names.size() >= kMaxWorkers || all_names >= kMaxNames) continue;
      ++all_names;
      known = peer.names.try_emplace(name.index).first;
    }
    Named& named = known->second;
    named.full_frame = peer.full_frames;
    const bool is_new = named.url != name.url || named.incarnation != name.incarnation;
    if (!is_new && named.worker != nullptr) continue;
    named.url = name.url;
    named.incarnation = name.incarnation;
    Resolve(&named);
    if (is_new && named.worker == nullptr) ++unknown_workers_;
  }
  // A full list may take several frames, so only what two of them did not have is gone.
  if (frame.full) {
    absl::erase_if(
        peer.names, [&](const auto& entry) { return entry.second.full_frame + 1 < peer.full_frames; });
  }
  for (const PeerFrame::Load& load : frame.loads) {
    const auto named = peer.names.find(load.index);
    if (named != peer.names.end()) named->second.load = load.counts;
  }
  return &peer;
}

void PeerTable::SumLoads(int64_t now_ns) {
  std::erase_if(
      peers_, [now_ns](const auto& entry) { return now_ns - entry.second.heard_ns > kForgetNanos; });
  absl::flat_hash_map<const Worker*, LoadCounts> sums;
  for (auto& [router, peer] : peers_) {
    const double share = ShareAt(peer, now_ns);
    if (share == 0) continue;
    for (const auto& [index, named] : peer.names) {
      if (named.worker != nullptr) AddShare(named.load, share, &sums[named.worker.get()]);
    }
  }
  for (auto& [url, own] : workers_) {
    const auto sum = sums.find(own.worker.get());
    Write(sum != sums.end() ? sum->second : LoadCounts{}, &own);
  }
}

size_t PeerTable::CountPresent(int64_t now_ns) const {
  return static_cast<size_t>(std::ranges::count_if(
      peers_, [now_ns](const auto& entry) { return entry.second.StateAt(now_ns) != State::kGone; }));
}

}  // namespace vllm_router
