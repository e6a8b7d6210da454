// A snapshot: what a router knows in strides of the caches of its whole fleet, for a router that starts. Bytes to an
// index and back.
//
//   0 "VRS1"  4 flags u32  8 fingerprint u64  16 router u64  24 number u64  32 taken_ms u64
//   40 slots u64; of each slot a mark u8 and, if it is 1, incarnation u64, length u32 and bytes of the URL
//      the index of strides, as BlockCacheTracker::Save() writes it
//
// Little-endian, sealed as frames are (frame.h). Bytes from outside: whatever is read is checked, and a snapshot that
// is wrong anywhere changes nothing. Cost: 20 ns per stride, during which no decision is recorded. Any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "policy/kv_index.h"
#include "worker/fleet_view.h"

namespace vllm_router {

struct SnapshotHead {
  uint64_t fingerprint = 0;
  uint64_t router = 0;
  uint64_t number = 0;    // of its snapshots; never the same again
  uint64_t taken_ms = 0;  // frames from then on are not in it
};

// Overwrites `bytes`. False: the index has no strides, or the fleet is not the one that it knows.
bool WriteSnapshot(
    const SnapshotHead& head, std::string_view secret, const FleetView& fleet, KvIndex* index,
    std::string* bytes);

// Adds what it tells of workers of the fleet to the index. FailedPrecondition: it is of another fingerprint;
// PermissionDenied as ReadFrame(); DataLoss: what is wrong with it.
StatusOr<SnapshotHead> ReadSnapshot(
    std::string_view bytes, std::string_view secret, uint64_t fingerprint, const FleetView& fleet,
    KvIndex* index);

}  // namespace vllm_router
