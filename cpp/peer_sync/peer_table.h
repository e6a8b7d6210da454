// PeerTable: the other routers of the fleet, what each has open on every worker, and how long ago it said so.
//
//   frame every 0.25 s     heard 0.1 s ago     live     its loads count
//   .  .  .  .  x          heard 4 s ago       late     they count for half after each kDecayNs beyond live_ns
//   .  .                   heard 12 s ago      gone     they count no more; the row is kept for kForgetNs
//
// Loads are states, not changes, so a frame that is lost, repeated or out of order does no harm: the highest
// sequence wins. Ages go by this router's clock at receipt. A router that starts again is another peer, and what
// its former life had open ends with the row.
//
// A peer's workers are known by its own index until a frame names them. Names that full frames no longer have are
// dropped. At most kMaxPeers rows, kMaxWorkers names in each and kMaxNames in all: beyond that, others are not heard.
//
// Cost: O(peers * workers) in SumLoads(). Times are nanoseconds of any steady clock. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "peer_sync/frame.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class PeerTable {
 public:
  static constexpr size_t kMaxPeers = 256;
  static constexpr size_t kMaxNames = 131'072;          // of all peers: 100 MB at most
  static constexpr size_t kMaxUrlBytes = 512;           // longer ones are not kept
  static constexpr int64_t kLiveNanos = 2'000'000'000;  // or three of its intervals, if those are longer
  static constexpr int64_t kGoneNanos = 10'000'000'000;
  static constexpr int64_t kDecayNanos = 2'000'000'000;
  static constexpr int64_t kForgetNanos = 600'000'000'000;
  // Frames that a peer may have sent unheard: three days of them. What jumps further is forged.
  static constexpr uint64_t kMaxGap = 1 << 20;
  static constexpr uint32_t kMaxIntervalMs = 60'000;  // of a peer; it may say anything

  enum class State : uint8_t { kLive, kLate, kGone };

  struct Named {
    std::string url;
    uint64_t incarnation = 0;
    std::shared_ptr<Worker> worker;  // of this router's fleet; null: it has none of this URL and incarnation
    LoadCounts load;
    uint64_t full_frame = 0;  // that named it last
  };
  struct Peer {
    uint64_t router = 0;
    int64_t first_heard_ns = 0;
    int64_t heard_ns = 0;
    uint64_t sequence = 0;     // the highest
    uint64_t gaps = 0;         // frames that were missed
    uint64_t full_frames = 0;  // heard of it
    uint32_t interval_ms = 0;
    uint64_t fingerprint = 0;
    uint64_t seen = 0;  // of this router's frames, the last that it heard
    bool left = false;  // it said that it ends
    std::string name;   // empty: it said none
    std::string version;
    absl::flat_hash_map<uint32_t, Named> names;

    State StateAt(int64_t now_ns) const;
    // The worker of this router's fleet that the index stands for; null: it stands for none.
    const std::shared_ptr<Worker>* Find(uint32_t index) const;
  };

  PeerTable() = default;
  ~PeerTable();  // nothing of peers is left in loads
  PeerTable(const PeerTable&) = delete;
  PeerTable& operator=(const PeerTable&) = delete;

  // The workers that names may stand for.
  void SetFleet(const FleetView& fleet);

  // Names and loads of the frame. Null: there are too many peers. `repeated`: its sequence was heard before.
  // `may_be_forged`: whoever writes to that Redis may have made it; so a number far ahead of the last is not heard, and
  // after one that was, those far below begin anew.
  Peer* Hear(
      const PeerFrame& frame, uint64_t own_router, int64_t now_ns, bool* repeated,
      bool may_be_forged = false);
  // What every worker of the fleet has open through peers is written to its load. Forgets rows that are due.
  void SumLoads(int64_t now_ns);

  const std::map<uint64_t, Peer>& peers() const { return peers_; }  // by router
  // That are not gone: one that fell silent with all others, since this router hears none, is late before that is noticed.
  size_t CountPresent(int64_t now_ns) const;
  uint64_t unknown_workers() const { return unknown_workers_; }  // names of frames that no worker here has

 private:
  void Resolve(Named* named) const;
  bool MakeRoom(int64_t now_ns);

  struct Own {
    std::shared_ptr<Worker> worker;
    LoadCounts written;  // of peers, to its load
  };
  static void Write(const LoadCounts& counts, Own* own);

  absl::flat_hash_map<std::string, Own> workers_;  // by URL
  std::map<uint64_t, Peer> peers_;
  uint64_t unknown_workers_ = 0;
};

}  // namespace vllm_router
