// A frame: what one router tells the others at one of its ticks. Bytes to values and back; pure.
//
//   0 "VRP1"  4 flags u16  6 sections u16  8 fingerprint u64  16 router u64  24 sequence u64  32 sent_ms u64
//   40 interval_ms u32  44 bytes of the body u32
//   48 sections, each: type u8, length u24, payload                    16 bytes of HMAC-SHA-256 if keyed
//
//   section      of each entry                                                        says
//   1 workers    index, incarnation u64, length and bytes of the URL                  what an index stands for
//   2 loads      index, requests, waiting, queued_prefill, expected_output, context   the router's own, absolute
//   3 decisions  index, prompt tokens, kind, k, k * u64                               in order of decision
//   4 forgotten  index, incarnation u64                                               the worker's cache is empty
//   5 suspects   index, kind                                                          it did not answer
//   6 seen       router u64, sequence                                                 what was heard of it last
//
// Little-endian; what has no width is a varint (LEB128). Each section begins with its number of entries. An index
// is the sender's own and never given to another worker. Sections of unknown types, and bytes behind a section's
// entries, are skipped, so that later versions can add some.
//
// Bytes from outside: every length is checked, and a frame is read whole or not at all. Cost: 5 ns per stride and
// 20 per entry; the code at the end, if keyed, 1 ns per byte.
//
//   WriteFrame(frame, key, &bytes);
//   ROUTER_RETURN_IF_ERROR(ReadFrame(bytes, key, &frame));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "worker/worker_load.h"

namespace vllm_router {

inline constexpr size_t kMaxFrameBytes = 1 << 20;
inline constexpr uint32_t kMaxFrameStrides = 4096;  // of a decision; longer prompts are told up to there
inline constexpr size_t kMaxFrameUrlBytes = 4096;

struct PeerFrame {
  struct Name {
    uint32_t index = 0;
    uint64_t incarnation = 0;  // 0: its source names none
    std::string url;

    friend bool operator==(const Name&, const Name&) = default;
  };
  struct Load {
    uint32_t index = 0;
    LoadCounts counts;

    friend bool operator==(const Load&, const Load&) = default;
  };
  enum class Kind : uint8_t { kBlocks = 0 };  // what a stride is of
  struct Decision {
    uint32_t index = 0;
    uint32_t prompt_tokens = 0;
    Kind kind = Kind::kBlocks;
    uint32_t strides = 0;  // so many of PeerFrame::strides, behind those of the decisions before

    friend bool operator==(const Decision&, const Decision&) = default;
  };
  struct Forgotten {
    uint32_t index = 0;
    uint64_t incarnation = 0;

    friend bool operator==(const Forgotten&, const Forgotten&) = default;
  };
  enum class Cause : uint8_t { kRefused = 0, kTimeout = 1, kBreaker = 2 };
  struct Suspect {
    uint32_t index = 0;
    Cause cause = Cause::kRefused;

    friend bool operator==(const Suspect&, const Suspect&) = default;
  };
  struct Seen {
    uint64_t router = 0;
    uint64_t sequence = 0;

    friend bool operator==(const Seen&, const Seen&) = default;
  };

  bool full = false;  // names and loads are of all workers, not of those that changed
  bool bye = false;   // the router ends
  uint64_t fingerprint = 0;
  uint64_t router = 0;    // one life of a router
  uint64_t sequence = 0;  // of its frames, from 1
  uint64_t sent_ms = 0;   // by its clock, since 1970
  uint32_t interval_ms = 0;
  std::vector<Name> names;
  std::vector<Load> loads;
  std::vector<Decision> decisions;
  std::vector<uint64_t> strides;
  std::vector<Forgotten> forgotten;
  std::vector<Suspect> suspects;
  std::vector<Seen> seen;

  friend bool operator==(const PeerFrame&, const PeerFrame&) = default;
};

// Appends the frame's bytes to `out`. An empty key: without a code. REQUIRES: at most kMaxFrameBytes of it, and no
// member beyond the limits above.
void WriteFrame(const PeerFrame& frame, std::string_view key, std::string* out);

// Overwrites `frame`. PermissionDenied: the code is missing, wrong, or there although there is no key.
// InvalidArgument: what is wrong and where; never content.
Status ReadFrame(std::string_view bytes, std::string_view key, PeerFrame* frame);

}  // namespace vllm_router
