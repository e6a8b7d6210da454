#include "peer_sync/peer_sync.h"

#include <algorithm>
#include <span>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "hashing/hash.h"
#include "peer_sync/snapshot.h"

namespace vllm_router {
namespace {

// A frame is ended once its parts take so much, which leaves room for the largest entry and the rest.
constexpr size_t kFrameBytes = kMaxFrameBytes / 2;
constexpr size_t kNameBytes = 24;  // of an entry at most, besides the URL
constexpr size_t kFactBytes = 48;
constexpr size_t kLoadBytes = 56;
constexpr size_t kDecisionBytes = 20;  // likewise, besides the strides
constexpr size_t kTopicBytes = 4;      // likewise, besides the payload
constexpr size_t kMaxTold = 4096;      // forgotten workers and suspects of one tick
constexpr std::string_view kFormat = "VRP1";

}  // namespace

PeerSync::PeerSync(const PeerSyncOptions& options, KvIndex* index) : options_(options), index_(index) {}

uint64_t PeerSync::FingerprintOf(const KvIndex& index) {
  const BlockHasher& hasher = index.hasher();
  const uint32_t stride = index.coarse() != nullptr ? index.coarse()->stride_blocks() : 0;
  return Xxh3(Concat(kFormat, " ", hasher.block_size(), " ", stride, " ", hasher.seed()));
}

void PeerSync::SetFleet(const FleetView& fleet) {
  workers_.clear();
  for (const FleetView::Member& member : fleet.members()) workers_.push_back(member.worker);
  peers_.SetFleet(fleet);
  full_due_ = 2;
}

void PeerSync::AddTopic(PeerTopic* topic) {
  const uint8_t section = topic->section();
  ROUTER_CHECK(
      section >= kFirstTopicSection && section <= kLastTopicSection &&
          std::ranges::find(topics_, section, &PeerTopic::section) == topics_.end(),
      "each topic has a section of its own");
  topics_.push_back(topic);
}

PeerFrame PeerSync::NewFrame(uint64_t sent_ms) const {
  PeerFrame frame;
  frame.fingerprint = options_.fingerprint;
  frame.router = options_.router;
  frame.sent_ms = sent_ms;
  frame.interval_ms = options_.interval_ms;
  return frame;
}

PeerSync::Writing PeerSync::Begin(uint64_t sent_ms, std::vector<std::string>* frames) const {
  return {.sent_ms = sent_ms, .frames = frames, .frame = NewFrame(sent_ms)};
}

void PeerSync::Publish(Writing* writing) {
  writing->frame.sequence = ++sequence_;
  WriteFrame(writing->frame, options_.secret, &writing->frames->emplace_back());
  ++counts_.frames_sent;
}

void PeerSync::MakeRoom(size_t bytes, Writing* writing) {
  if (writing->bytes + bytes > kFrameBytes) {
    Publish(writing);
    *writing = Begin(writing->sent_ms, writing->frames);
  }
  writing->bytes += bytes;
}

void PeerSync::AddNames(Writing* writing) {
  for (const std::shared_ptr<Worker>& worker : workers_) {
    const std::string& url = worker->url.url;
    if (url.size() > kMaxFrameUrlBytes) continue;
    MakeRoom(kNameBytes + url.size(), writing);
    writing->frame.names.push_back(
        {.index = static_cast<uint32_t>(worker->id),
         .incarnation = worker->incarnation.load(std::memory_order_relaxed),
         .url = url});
  }
}

void PeerSync::AddFacts(Writing* writing) {
  for (AdminFact& fact : new_facts_) {
    MakeRoom(kFactBytes + fact.url.size() + fact.role.kv_group.size(), writing);
    std::vector<AdminFact>& list =
        fact.role.stage == Stage::kAll ? writing->frame.facts : writing->frame.staged;
    list.push_back(std::move(fact));
  }
  new_facts_.clear();
}

bool PeerSync::TellFact(const AdminFact& fact) {
  if (fact.url.size() > kMaxFrameUrlBytes || !facts_.Merge(fact)) return false;
  new_facts_.push_back(fact);
  return true;
}

void PeerSync::AddLoads(Writing* writing) {
  for (const std::shared_ptr<Worker>& worker : workers_) {
    const LoadCounts now = worker->load.own();
    const auto [told, untold] = told_.try_emplace(worker->id);
    if (!untold && told->second == now) continue;
    told->second = now;
    MakeRoom(kLoadBytes, writing);
    writing->frame.loads.push_back({.index = static_cast<uint32_t>(worker->id), .counts = now});
  }
}

void PeerSync::AddDecisions(Writing* writing) {
  if (index_ == nullptr || index_->outgoing() == nullptr) return;
  index_->outgoing()->Take(&batch_);
  const auto bytes_of = [](const DecisionBuffer::Entry& entry) {
    return kDecisionBytes + std::min(entry.strides, kMaxFrameStrides) * sizeof(uint64_t);
  };
  // The newest tell most: prompts of a burst come again soonest.
  size_t first = 0;
  if (options_.max_tick_bytes != 0) {
    uint64_t bytes = 0;
    for (first = batch_.entries.size(); first > 0; --first) {
      bytes += bytes_of(batch_.entries[first - 1]);
      if (bytes > options_.max_tick_bytes) break;
    }
  }
  counts_.decisions_over_budget += first;
  const uint64_t* strides = batch_.strides.data();
  for (size_t i = 0; i < first; ++i) strides += batch_.entries[i].strides;

  for (size_t i = first; i < batch_.entries.size(); ++i) {
    const DecisionBuffer::Entry& entry = batch_.entries[i];
    MakeRoom(bytes_of(entry), writing);
    const uint32_t told = std::min(entry.strides, kMaxFrameStrides);
    writing->frame.decisions.push_back(
        {.index = static_cast<uint32_t>(entry.worker),
         .prompt_tokens = entry.prompt_tokens,
         .strides = told});
    writing->frame.strides.insert(writing->frame.strides.end(), strides, strides + told);
    strides += entry.strides;
    ++counts_.decisions_sent;
  }
}

void PeerSync::AddTopics(bool full, int64_t now_ns, Writing* writing) {
  for (PeerTopic* const topic : topics_) {
    std::string payload = topic->Tell(full, now_ns);
    if (payload.empty()) continue;
    ROUTER_CHECK(payload.size() <= PeerTopic::kMaxBytes, "what a topic tells is bounded");
    MakeRoom(kTopicBytes + payload.size(), writing);
    writing->frame.topics.push_back({.section = topic->section(), .payload = std::move(payload)});
  }
}

void PeerSync::WriteFrames(int64_t now_ns, uint64_t sent_ms, std::vector<std::string>* frames) {
  Writing writing = Begin(sent_ms, frames);
  PeerFrame& frame = writing.frame;
  const bool full = full_due_ > 0 || !full_ns_ || now_ns - *full_ns_ >= kFullNanos;
  if (full) {
    full_due_ = std::max(0, full_due_ - 1);
    full_ns_ = now_ns;
    told_.clear();
    frame.full = true;
    for (const auto& [router, peer] : peers_.peers()) {
      if (peer.StateAt(now_ns) != PeerTable::State::kGone)
        frame.seen.push_back({.router = router, .sequence = peer.sequence});
    }
    if (!options_.name.empty()) frame.about.push_back({options_.name, options_.version});
    AddNames(&writing);
    new_facts_.clear();
    for (const auto& [key, fact] : facts_.all()) new_facts_.push_back(fact);
  }
  AddTopics(full, now_ns, &writing);
  AddFacts(&writing);
  AddLoads(&writing);
  frame.forgotten = std::exchange(forgotten_, {});
  frame.suspects = std::exchange(suspects_, {});
  AddDecisions(&writing);
  Publish(&writing);
}

void PeerSync::WriteBye(int64_t now_ns, uint64_t sent_ms, std::vector<std::string>* frames) {
  Writing writing = Begin(sent_ms, frames);
  AddTopics(false, now_ns, &writing);
  writing.frame.bye = true;
  Publish(&writing);
}

bool PeerSync::WriteSnapshot(const FleetView& fleet, uint64_t taken_ms, std::string* bytes) {
  if (index_ == nullptr) return false;
  const SnapshotHead head = {
      .fingerprint = options_.fingerprint,
      .router = options_.router,
      .number = ++snapshots_,
      .taken_ms = taken_ms};
  return vllm_router::WriteSnapshot(head, options_.secret, fleet, index_, bytes);
}

StatusOr<uint64_t> PeerSync::ReadSnapshot(std::string_view bytes, const FleetView& fleet) {
  if (index_ == nullptr) return absl::FailedPreconditionError("the policy has no index of blocks");
  const StatusOr<SnapshotHead> head =
      vllm_router::ReadSnapshot(bytes, options_.secret, options_.fingerprint, fleet, index_);
  if (!head.ok()) return head.status();
  return head->taken_ms;
}

void PeerSync::TellForgotten(WorkerId worker) {
  for (const std::shared_ptr<Worker>& known : workers_) {
    if (known->id != worker || forgotten_.size() >= kMaxTold) continue;
    forgotten_.push_back(
        {.index = static_cast<uint32_t>(worker),
         .incarnation = known->incarnation.load(std::memory_order_relaxed)});
  }
}

void PeerSync::TellSuspect(WorkerId worker, PeerFrame::Cause cause) {
  const PeerFrame::Suspect suspect = {.index = static_cast<uint32_t>(worker), .cause = cause};
  if (suspects_.size() < kMaxTold && std::ranges::find(suspects_, suspect) == suspects_.end())
    suspects_.push_back(suspect);
}

Status PeerSync::Read(
    std::string_view bytes, int64_t now_ns, std::vector<std::shared_ptr<Worker>>* suspects,
    std::vector<AdminFact>* facts, int64_t age_ns) {
  if (const Status status = ReadFrame(bytes, options_.secret, &read_); !status.ok()) {
    ++(absl::IsPermissionDenied(status) ? counts_.frames_refused : counts_.frames_malformed);
    return status;
  }
  if (read_.router == options_.router) {
    ++counts_.frames_repeated;
    return absl::OkStatus();
  }
  // It cannot have heard what was not said.
  std::erase_if(read_.seen, [this](const PeerFrame::Seen& seen) {
    return seen.router == options_.router && seen.sequence > sequence_;
  });
  bool repeated = false;
  const PeerTable::Peer* const peer =
      peers_.Hear(read_, options_.router, now_ns, &repeated, options_.secret.empty());
  if (peer == nullptr || repeated) {
    ++(repeated ? counts_.frames_repeated : counts_.frames_not_heard);
    return absl::OkStatus();
  }
  ++counts_.frames_read;
  // What is forgotten and suspected is of now: frames that someone copied, sealed or not, must not say it again.
  if (read_.sequence != peer->sequence) {
    read_.forgotten.clear();
    read_.suspects.clear();
    read_.topics.clear();
  }
  Apply(read_, *peer);
  for (const std::vector<AdminFact>* const told : {&read_.facts, &read_.staged}) {
    for (const AdminFact& fact : *told) {
      if (facts != nullptr && fact.at_ms <= latest_fact_ms_ && facts_.Merge(fact)) facts->push_back(fact);
    }
  }
  for (const PeerFrame::Topic& told : read_.topics) {
    const auto topic = std::ranges::find(topics_, told.section, &PeerTopic::section);
    if (topic == topics_.end()) continue;
    (*topic)->Hear(
        {.router = read_.router,
         .interval_ms = peer->interval_ms,
         .told_ns = now_ns - age_ns,
         .payload = told.payload},
        now_ns);
  }
  if (suspects == nullptr) return absl::OkStatus();
  for (const PeerFrame::Suspect& suspect : read_.suspects) {
    if (const std::shared_ptr<Worker>* const worker = peer->Find(suspect.index)) suspects->push_back(*worker);
  }
  return absl::OkStatus();
}

void PeerSync::Apply(const PeerFrame& frame, const PeerTable::Peer& peer) {
  if (index_ == nullptr) return;
  const bool understood = frame.fingerprint == options_.fingerprint;
  for (const PeerFrame::Forgotten& forgotten : frame.forgotten) {
    const std::shared_ptr<Worker>* const worker = peer.Find(forgotten.index);
    if (worker != nullptr && (*worker)->MayBe(forgotten.incarnation)) index_->Forget((*worker)->id);
  }
  size_t at = 0;
  for (const PeerFrame::Decision& decision : frame.decisions) {
    const std::span<const uint64_t> strides = std::span(frame.strides).subspan(at, decision.strides);
    at += decision.strides;
    const std::shared_ptr<Worker>* const worker = peer.Find(decision.index);
    if (!understood || decision.kind != PeerFrame::Kind::kBlocks) {
      ++counts_.decisions_foreign;
    } else if (worker == nullptr) {
      ++counts_.decisions_unknown_worker;
    } else {
      index_->RecordPeerDecision((*worker)->id, decision.prompt_tokens, strides);
      ++counts_.decisions_applied;
    }
  }
}

void PeerSync::SetConnected(bool connected, int64_t now_ns) {
  if (connected) {
    disconnected_ns_.reset();
  } else if (!disconnected_ns_) {
    disconnected_ns_ = now_ns;
  }
}

void PeerSync::Update(int64_t now_ns) {
  peers_.SumLoads(now_ns);
  alone_ = disconnected_ns_ && now_ns - *disconnected_ns_ >= kAloneNanos;
  if (index_ != nullptr) index_->SetAlone(alone_);
  const bool connected = !disconnected_ns_;
  if (connected) routers_ = static_cast<uint32_t>(peers_.CountPresent(now_ns)) + 1;
  for (PeerTopic* const topic : topics_) topic->Turn(connected, routers_, now_ns);
}

}  // namespace vllm_router
