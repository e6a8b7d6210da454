// A frame: what one router tells the others at one of its ticks. Bytes to values and back; pure.
//
//   0 "VRP1"  4 flags u16  6 sections u16  8 fingerprint u64  16 router u64  24 sequence u64  32 sent_ms u64
//   40 interval_ms u32  44 bytes of the body u32
//   48 sections, each: type u8, length u24, payload          if sealed encrypted, and 16 bytes that authenticate all
//
//   section      of each entry                                                        says
//   1 workers    index, incarnation u64, length and bytes of the URL                  what an index stands for
//   2 loads      index, requests, waiting, queued_prefill, expected_output, context   the router's own, absolute
//   3 decisions  index, prompt tokens, kind, k, k * u64                               in order of decision
//   4 forgotten  index, incarnation u64                                               the worker's cache is empty
//   5 suspects   index, kind                                                          it did not answer
//   6 seen       router u64, sequence                                                 what was heard of it last
//   7 about      length and bytes of the name, of the version                         the router itself
//   8 facts      kind, flags (1 holds, 2 API key), weight, timeout_ms, at_ms,         what admins said of workers
//                router u64, length and bytes of the URL
//   9 staged     as 8, and then stage, bootstrap port (0: none)                       of workers with a stage
//  10 to 31      one payload, which only the topic reads (base/peer_topic.h)           what other parts of the router tell:
//  10 tenants                                                                         admission/fleet_limits.h
//
// Little-endian; what has no width is a varint (LEB128). Each section below 10 begins with its number of entries. An index
// is the sender's own and never given to another worker. Sections of unknown types, and bytes behind a section's
// entries, are skipped, so that later versions can add some. So a router that knows no stages does not hear of workers
// that have one, instead of adding them without; what is told of a stage that this router does not know is left out.
//
// Routers with a secret seal their frames: AES-256-GCM (hashing/aead.h) under HMAC-SHA-256(secret; the magic, router)
// with the sequence as its number. So a secret's frames tell others that there are routers and how much they say, and
// no one without it makes one. A frame that was sealed once can be sent again: its sequence tells.
//
// Bytes from outside: every length is checked, and a frame is read whole or not at all. Cost: 5 ns per stride and
// 20 per entry; 2 us and 0.3 ns per byte if sealed.
//
//   WriteFrame(frame, secret, &bytes);
//   ROUTER_RETURN_IF_ERROR(ReadFrame(bytes, secret, &frame));
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "peer_sync/admin_facts.h"
#include "worker/worker_load.h"

namespace vllm_router {

inline constexpr size_t kMaxFrameBytes = 1 << 20;
inline constexpr uint32_t kMaxFrameStrides = 4096;  // of a decision; longer prompts are told up to there
inline constexpr size_t kMaxFrameUrlBytes = 4096;
inline constexpr size_t kMaxRouterNameBytes = 256;
inline constexpr size_t kMaxRouterVersionBytes = 64;
inline constexpr uint8_t kFirstTopicSection = 10;
inline constexpr uint8_t kLastTopicSection = 31;

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

  struct About {
    std::string name;
    std::string version;

    friend bool operator==(const About&, const About&) = default;
  };

  struct Topic {
    uint8_t section = 0;
    std::string payload;

    friend bool operator==(const Topic&, const Topic&) = default;
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
  std::vector<About> about;  // one, or none
  std::vector<AdminFact> facts;
  std::vector<AdminFact> staged;  // those with a role
  std::vector<Topic> topics;

  friend bool operator==(const PeerFrame&, const PeerFrame&) = default;
};

// Overwrites `bytes`. An empty secret: not sealed. REQUIRES: at most kMaxFrameBytes of it, no member beyond the
// limits above, and no other frame of this router has its sequence.
void WriteFrame(const PeerFrame& frame, std::string_view secret, std::string* bytes);

// Overwrites `frame`. PermissionDenied: it is not sealed, or with another secret, or although there is none.
// InvalidArgument: what is wrong and where; never content.
Status ReadFrame(std::string_view bytes, std::string_view secret, PeerFrame* frame);

}  // namespace vllm_router
