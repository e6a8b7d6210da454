// Replay: a trace through the server's own Router and policies in front of simulated engines, as
// discrete events. It shows in a second, instead of an afternoon with GPUs, which policy serves this
// traffic best.
//
//   trace --arrival--> Router::Select --Ticket--> BatchEngine of that worker --first token, finish--> Ticket
//                        the product's own                 steps, KV blocks           load returns
//
// A block of the trace is identified by its id and all ids before it, so traces whose ids name contents
// and traces whose ids name prefixes both work. A router sees what a real one sees: its own decisions,
// first tokens, finishes. At the end it learns those blocks of a response that its worker then has.
//
// A fleet may have two stages (ReplayStages). Then a request is a pair, as behind a connector that pulls, or it
// bypasses prefill:
//
//   SelectBypass ──▶ decode worker, which computes what it has not
//   Select, Select ─▶ prefill worker ─▶ its blocks are held ─▶ decode worker reserves ─▶ transfer ─▶ it decodes
//                                                                                          └─▶ they are released
//
// A transfer takes the egress link of the one and the ingress link of the other worker for bytes / rate, one
// transfer at a time on each, in the order in which decode workers admit requests; and then the latency.
//
// With priority classes (ReplayRouting::admission) a request that has come waits at its router, in the server's own queues,
// until a worker has room for its class; what the policy knows of the prompt decides with the tenants who goes next.
//
//   arrival ──▶ ReplayAdmission ── at once, or at a first token, an end, a tick ──▶ Router::Select among those with room
//                  └─▶ rejected: its queue is full, another displaced it, or its class's timeout
//
// Time is the engines' (whole picoseconds); equal arguments give equal results, bit for bit. 100,000
// requests per second and more on one core. One thread per call; calls share nothing.
//
//   ReplayTrace trace{.arrival_s = ..., .block_size = 512};
//   StatusOr<ReplayResult> result = Simulate(trace, {.router = {.policy = {.policy = "least_load"}}}, {.workers = 8});
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "routing/router.h"
#include "simulation/batch_engine.h"

namespace vllm_router {

// Columns of n requests, in order of arrival.
struct ReplayTrace {
  std::span<const double> arrival_s;
  std::span<const uint32_t> input_tokens;
  std::span<const uint32_t> output_tokens;
  // The prompt of request i in blocks: ids [offsets[i], offsets[i + 1]); the last may be partly filled.
  std::span<const uint64_t> block_ids;
  std::span<const int64_t> block_offsets;
  // The blocks that its response fills, likewise; empty: no later prompt contains a response's blocks.
  std::span<const uint64_t> output_block_ids;
  std::span<const int64_t> output_block_offsets;
  std::span<const uint64_t> session_ids;  // empty: each request is a session of its own
  // PriorityClass of each; empty: all are kDefault.
  std::span<const uint8_t> priority_classes;
  // Tenants by number; empty: all are of one.
  std::span<const uint32_t> tenants;
  uint32_t block_size = 512;  // tokens

  // Of a closed loop of turns, as agents make it: request i arrives pause_s[i] after the last of the requests
  // after_rows[after_offsets[i]:after_offsets[i + 1]] ended, each of which has a smaller number; one that names
  // none arrives at its time. Empty: no request waits for another.
  std::span<const int64_t> after_rows;
  std::span<const int64_t> after_offsets;
  std::span<const double> pause_s;

  // Arrival times: arrival_s * time_scale; or, in the same order, a Poisson process of so many per
  // second; or a closed loop, in which the next arrives whenever one ends, so that so many are always
  // under way. Pauses are scaled, too; the two others are not for turns that wait for each other.
  double time_scale = 1;
  double poisson_rate = 0;
  uint32_t closed_loop = 0;
};

// Routers that tell each other of their decisions and loads (peer_sync/peer_sync.h), as a bus between them carries it.
struct ReplayPeerSync {
  // A router without the bus from time_s on: its frames are lost, and it hears none until it is back and reads
  // those of the last 30 seconds.
  struct Cut {
    double time_s = 0;
    double seconds = 1e9;
    int32_t router = -1;  // -1: all
  };

  double interval_s = 0.25;  // between a router's frames; it reads the others' twice in that time
  uint32_t stride_tokens = 256;
  double loss = 0;               // share of the frames that a router misses
  double decisions_delay_s = 0;  // decisions, but no loads, come so much later
  std::vector<Cut> cuts;
};

struct ReplayRouting {
  // Its block size is the trace's, its worker URLs are the fleet's; the policy may be one of
  // comparison_policies.h.
  RouterOptions router;
  uint32_t routers = 1;        // independent replicas
  bool by_session = false;     // a session's requests go to one replica; else each to any
  uint32_t prefix_blocks = 3;  // policies that route by a prefix digest use this many blocks
  // The policy knows the caches by KV events with this delay, and by requests that were sent and have no token
  // yet; negative: by what was sent. Policies that match no blocks cannot.
  double events_delay_s = -1;
  // False: responses come whole, so a router sees no first tokens, and waits for each response to its end.
  bool streams = true;
  std::optional<ReplayPeerSync> peer_sync = {};  // nullopt: replicas know nothing of each other
  // Sessions that `holdout_policy` routes instead, as behind --holdout-percent; all replicas hold the same ones out.
  double holdout_percent = 0;
  std::string holdout_policy = "least_load";
  // Priority classes, as the lines of admission/admission_settings.h; nullopt: no request waits at a router. Workers report
  // the use of their KV caches every second. Not with stages, nor without `streams`.
  std::optional<std::string> admission = {};
  // Programs, as the line of admission/program_settings.h; nullopt: they are not told apart. Each session is one. Not with
  // stages, nor with `admission`.
  std::optional<std::string> programs = {};
  // False: no waiter knows which workers have its prompt, so that it goes to any with room.
  bool admission_search = true;
  // Of the trace's tenants, by number, as `admission` gives them weights; empty: all have that of unnamed ones.
  std::vector<std::string> tenant_names = {};
  uint64_t seed = 0;  // of arrivals and replicas; policies have their own
};

struct ReplayEvent {
  // A worker that joins before it fails is absent at the start. A failed one loses its cache and its
  // requests, which are sent again if they had no token yet. A wiped one loses the blocks that no
  // running request holds.
  // The speed of one changes from its next step on; a worker that failed comes back with the speed that it had at first.
  enum class Kind : uint8_t { kFail, kJoin, kDrain, kWipe, kSpeed };
  double time_s = 0;
  Kind kind = Kind::kWipe;
  uint32_t worker = 0;
  double speed = 1;  // of kSpeed: relative, as ReplayFleet::speeds
};

// The first `prefill` workers of the fleet compute prompts, and the others decode. Of events only wipes may happen.
struct ReplayStages {
  uint32_t prefill = 0;
  uint64_t prefill_cache_blocks = 0;  // of each; the fleet's engine has those of a decode worker
  double kv_bytes_per_token = 262144;
  double link_gb_per_s = 64;  // of a worker, in each direction
  double transfer_ms = 1;     // beside that: what the engines and the router say to each other
};

struct ReplayFleet {
  uint32_t workers = 8;
  BatchEngineOptions engine;  // block_tokens is the trace's
  std::optional<ReplayStages> stages = {};
  std::vector<double> speeds;   // relative, one per worker; empty: all 1
  std::vector<double> weights;  // as the router is configured; empty: all 1
  std::vector<ReplayEvent> events;
};

enum class ReplayStatus : uint8_t {
  kFinished,
  kRefused,   // no worker was available
  kCutShort,  // its worker failed after the first token
  // Behind a wait at the router, or without one.
  kQueueFull,
  kDisplaced,
  kTimedOut,
};

struct ReplayWorker {
  uint64_t requests = 0;  // that ended here
  uint64_t prompt_tokens = 0;
  uint64_t hit_tokens = 0;
  uint64_t output_tokens = 0;
  uint64_t computed_tokens = 0;  // of prompts, those of requests that did not end here among them
  uint64_t fetched_tokens = 0;   // of prompts, from a prefill worker
  double busy_s = 0;
  uint64_t steps = 0;
  uint64_t evicted_blocks = 0;
  uint64_t held_blocks = 0;  // at the end, by requests
};

struct ReplayResult {
  std::vector<int32_t> worker;  // the last worker of each, in a fleet with stages the decode worker; -1: none
  std::vector<int32_t> prefill_worker;   // -1: none, as in a fleet without stages and of a bypass
  std::vector<uint32_t> fetched_tokens;  // of the prompt, by the decode worker
  std::vector<double> arrival_s;
  std::vector<double> ttft_s;  // since the arrival; NaN where there was none
  std::vector<double> e2e_s;
  std::vector<uint32_t> hit_tokens;        // of the worker that computed the prompt
  std::vector<uint32_t> predicted_tokens;  // tokens that the router expected to be cached
  std::vector<uint8_t> status;             // ReplayStatus
  std::vector<uint8_t> held_out;           // 1: its session is; empty: none are
  // With priority classes or programs; else empty. How long it waited at its router, and how it was dispatched (DispatchKind); 255: it
  // was not.
  std::vector<double> wait_s;
  std::vector<uint8_t> dispatch;
  std::vector<ReplayWorker> workers;
  uint64_t peer_sync_frames = 0;  // that routers published, and their bytes
  uint64_t peer_sync_bytes = 0;
  double span_s = 0;       // from the first arrival to the last end
  double load_spread = 0;  // coefficient of variation of open requests over the workers, mean over arrivals
};

// InvalidArgument names the error in trace, routing or fleet; Cancelled when `go_on`, which is called
// now and then, returns false.
StatusOr<ReplayResult> Simulate(
    const ReplayTrace& trace, const ReplayRouting& routing, const ReplayFleet& fleet,
    const std::function<bool()>& go_on = nullptr);

}  // namespace vllm_router
