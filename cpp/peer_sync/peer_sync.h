// PeerSync: what this router tells the others of its fleet, and what it makes of what they tell. No sockets and no
// clock: times are passed in, and whatever carries frames (a Redis, a replay) calls it.
//
//   KvIndex::outgoing() --decisions-.                                   .-> KvIndex::RecordPeerDecision
//   Worker::load.own() ----loads---- WriteFrames() ==> others ==> Read() -> PeerTable --SumLoads--> load.SetPeers
//   FleetView ------------names----´                                    `-> suspects: to be asked, never believed
//   PeerTopic ------------payload--´                                    `-> PeerTopic of the same section
//
// Loads must be fresh, since routers that see old ones send to one worker together; decisions may be late, lossy
// and coarse (docs/explanation/several_routers.md has the figures). So each frame has the loads that changed, and
// every kFullNanos all of them, with the names of the workers: a peer that missed something is right again by then.
//
// Decisions of a peer whose fingerprint differs cannot be understood (another block size, another hash) and are
// ignored; its loads count. Nothing here is needed to serve: without frames a router decides by itself. It is
// alone once it has been disconnected for kAloneNanos: then the index assumes holders (KvIndex::SetAlone), and
// whoever owns this polls the workers' loads.
//
// Cost of a tick: 20 ns per worker, 10 per stride. One thread; the index and the loads that it writes to are used
// by all.
//
//   PeerSync sync({.router = id, .fingerprint = …}, index);
//   sync.SetFleet(view);                                    // when its membership changed
//   sync.WriteFrames(now_ns, sent_ms, &frames);             // each interval: publish them
//   sync.Read(frame, now_ns);                               // each of the others'
//   sync.Update(now_ns);
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/peer_topic.h"
#include "base/status.h"
#include "peer_sync/admin_facts.h"
#include "peer_sync/frame.h"
#include "peer_sync/peer_table.h"
#include "policy/kv_index.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct PeerSyncOptions {
  uint64_t router = 0;       // of this life; no other router of the fleet has it
  uint64_t fingerprint = 0;  // FingerprintOf(); equal: strides can be compared
  uint32_t interval_ms = 250;
  std::string secret;  // that frames are sealed with; empty: they are not
  std::string name;    // of this router, for people
  std::string version;
  uint64_t max_tick_bytes = 0;  // of decisions; beyond it the oldest are dropped. 0: without limit
};

struct PeerSyncCounts {
  uint64_t frames_sent = 0;
  uint64_t frames_read = 0;
  uint64_t frames_malformed = 0;
  uint64_t frames_refused = 0;    // not sealed with this router's secret
  uint64_t frames_repeated = 0;   // and our own
  uint64_t frames_not_heard = 0;  // there are too many peers
  uint64_t decisions_sent = 0;
  uint64_t decisions_over_budget = 0;
  uint64_t decisions_applied = 0;
  uint64_t decisions_foreign = 0;         // of another fingerprint
  uint64_t decisions_unknown_worker = 0;  // of no worker of this fleet
};

class PeerSync {
 public:
  static constexpr int64_t kFullNanos = 2'000'000'000;
  static constexpr int64_t kAloneNanos = 5'000'000'000;

  // The index outlives this; null: the policy matches no blocks, and only loads are told.
  PeerSync(const PeerSyncOptions& options, KvIndex* index);

  // Equal in routers whose strides can be compared.
  static uint64_t FingerprintOf(const KvIndex& index);

  void SetFleet(const FleetView& fleet);
  // Told with each tick and given what others tell of it. It outlives this. REQUIRES: its section is that of a topic, and of
  // no other one here.
  void AddTopic(PeerTopic* topic);

  // Appends what is to be published now, in order. `sent_ms`: since 1970.
  void WriteFrames(int64_t now_ns, uint64_t sent_ms, std::vector<std::string>* frames);
  // The last words of this life: what topics have left to tell, and that peers count its loads no more.
  void WriteBye(int64_t now_ns, uint64_t sent_ms, std::vector<std::string>* frames);
  // For a router that starts: all that is known in strides. False: not now, or never.
  bool WriteSnapshot(const FleetView& fleet, uint64_t taken_ms, std::string* bytes);
  // Of another router, as this one starts. When it was taken, by the clock that the writer passed in.
  StatusOr<uint64_t> ReadSnapshot(std::string_view bytes, const FleetView& fleet);
  // A worker's cache is known to be empty, or it did not answer: told with the next frame.
  void TellForgotten(WorkerId worker);
  void TellSuspect(WorkerId worker, PeerFrame::Cause cause);

  // What an admin said at this router, told with the next frame and with each full one. False: it is of no effect,
  // since something later is known.
  bool TellFact(const AdminFact& fact);
  const AdminFacts& facts() const { return facts_; }
  // Facts of others that were said later than this are none: no admin could ever contradict them. Unless it is called,
  // all count.
  void TrustFactsUntil(uint64_t ms) { latest_fact_ms_ = ms; }
  void ForgetFacts(uint64_t now_ms, const std::function<bool(const std::string& url)>& knows) {
    facts_.Forget(now_ms, knows);
  }

  // One frame that another router published `age_ns` ago; `suspects`, unless null, gets the workers that should be asked,
  // and `facts` those that this router did not know. A frame that cannot be read is counted, and changes nothing.
  Status Read(
      std::string_view bytes, int64_t now_ns, std::vector<std::shared_ptr<Worker>>* suspects = nullptr,
      std::vector<AdminFact>* facts = nullptr, int64_t age_ns = 0);

  // Whether frames get through; it begins connected. `now_ns`: since when, if they no longer do.
  void SetConnected(bool connected, int64_t now_ns);
  // Writes peers' loads, decides whether this router is alone, and gives topics their turn.
  void Update(int64_t now_ns);
  bool alone() const { return alone_; }

  const PeerSyncOptions& options() const { return options_; }
  const PeerTable& peers() const { return peers_; }
  // With this one; while they are not connected, those that there were.
  uint32_t routers() const { return routers_; }
  const PeerSyncCounts& counts() const { return counts_; }
  uint64_t sequence() const { return sequence_; }

 private:
  // What is written now: a frame, and those before it that were full.
  struct Writing {
    uint64_t sent_ms;
    std::vector<std::string>* frames;
    PeerFrame frame;
    size_t bytes = 0;  // of its entries, at most
  };
  Writing Begin(uint64_t sent_ms, std::vector<std::string>* frames) const;
  PeerFrame NewFrame(uint64_t sent_ms) const;
  // Before an entry of so many bytes: a frame that has no room for it is published.
  void MakeRoom(size_t bytes, Writing* writing);
  // Numbers the frame and writes it.
  void Publish(Writing* writing);
  void AddNames(Writing* writing);
  void AddFacts(Writing* writing);
  void AddLoads(Writing* writing);
  void AddDecisions(Writing* writing);
  void AddTopics(bool full, int64_t now_ns, Writing* writing);
  void Apply(const PeerFrame& frame, const PeerTable::Peer& peer);

  const PeerSyncOptions options_;
  KvIndex* const index_;
  PeerTable peers_;
  PeerSyncCounts counts_;
  std::vector<std::shared_ptr<Worker>> workers_;  // of the fleet
  // Full frames that are due: after a change of the fleet two, since peers drop what two of them lack.
  int full_due_ = 0;
  absl::flat_hash_map<WorkerId, LoadCounts> told_;  // loads, as peers know them
  std::vector<PeerFrame::Forgotten> forgotten_;
  std::vector<PeerFrame::Suspect> suspects_;
  AdminFacts facts_;
  std::vector<AdminFact> new_facts_;
  std::vector<PeerTopic*> topics_;
  uint64_t latest_fact_ms_ = std::numeric_limits<uint64_t>::max();
  uint64_t sequence_ = 0;
  uint64_t snapshots_ = 0;
  std::optional<int64_t> full_ns_;  // the last full frame
  std::optional<int64_t> disconnected_ns_;
  bool alone_ = false;
  uint32_t routers_ = 1;
  PeerFrame read_;  // scratch space, as is the next
  DecisionBuffer::Batch batch_;
};

}  // namespace vllm_router
