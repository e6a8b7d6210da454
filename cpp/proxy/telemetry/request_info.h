// RequestInfo: all that is recorded about one exchange. At FINISH, Telemetry makes log lines and metric
// increments from it. Times are nanoseconds of the steady clock, 0 if the step was not reached.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <absl/container/inlined_vector.h>

#include "policy/decision.h"
#include "proxy/api/routes.h"
#include "routing/prompt_reading.h"
#include "tracing/trace_context.h"
#include "worker/worker.h"

namespace vllm_router {

// How an exchange ended; a metric label and a field of the log.
enum class ExchangeEnd : uint8_t {
  kDone,           // a complete response, ours or a worker's, whatever its status
  kNoDone,         // complete, but an event stream without its [DONE]
  kClientGone,     // the client left first
  kSlowClient,     // the client took nothing for too long
  kWorkerGone,     // the worker broke off in the middle of its response
  kWorkerError,    // an event stream, complete, but its last event says that the worker failed
  kTimeout,        // the response was cut by a deadline
  kDrain,          // cut by our shutdown
  kWorkerAborted,  // complete, but it says that the worker aborted the generation
};
inline constexpr int kExchangeEndCount = static_cast<int>(ExchangeEnd::kWorkerAborted) + 1;
std::string_view ExchangeEndName(ExchangeEnd end);

// Of a request to a fleet with stages.
struct PdInfo {
  std::string_view kind;            // two_stages, local, single
  std::string_view local;           // why decode served it alone; usually empty
  std::shared_ptr<Worker> prefill;  // null: none was chosen
  int prefill_status = 0;
  int64_t prefill_ns = 0;  // from the request to prefill until its response was read
  int64_t prefill_end_ns = 0;
  int64_t handoff_ns = 0;        // from there to decode's first byte
  uint32_t uncached_tokens = 0;  // of a prompt that bypassed prefill, to compute at decode; 0: it did not
  uint32_t saved_tokens = 0;     // likewise, that decode was expected to have
  std::string pair_id;
  std::string_view claim;    // how the blocks at prefill ended; empty: there were none
  bool transferred = false;  // decode got them
};

// Of a request that names the conversation that it belongs to (routing/session_names.h).
struct SessionInfo {
  std::string session;
  std::string parent;
  std::string agent;
  bool has_turn = false;        // it is one of the conversation's turns
  bool is_final = false;        // no other follows
  int64_t program_wait_ns = 0;  // until its program might go on
};

// Who sends a request, as keys and trusted peers say (admission/).
struct IdentityInfo {
  // Whose the tenant is: the client's own, or one that a trusted peer names. A peer that names several names none.
  enum class Source : uint8_t { kOwn, kPeer, kAmbiguous };

  std::string tenant;
  Source source = Source::kOwn;
  bool configured = false;          // the operator has named the tenant
  std::string_view priority_class;  // its name
  std::string_view claimed_class;   // that the request claims; empty: none, or the same
  std::string_view dispatch;  // how it came to a worker: direct, queued or aged; empty: there are no classes
  uint32_t evictions = 0;     // from workers, for requests of a higher class
};

// Of an event stream that its worker did not end (proxy/continuation/).
struct ContinuedInfo {
  std::shared_ptr<Worker> first_worker;
  std::string_view why;          // its stream ended: lost, dead …
  std::string_view method = {};  // by which it went on; empty: it did not
  std::string_view end;          // whole, or why it was cut; empty: something else ended it
  uint32_t times = 0;            // that it went on at another worker
  uint64_t tokens = 0;           // that were generated when it did last; 0: it is not known
  int64_t gap_ns = 0;            // the longest time without anything new for the client
};

// What an attempt gets of the response: all of it, or the part of one stage.
enum class AttemptPhase : uint8_t { kInference, kPrefill, kDecode };
std::string_view AttemptPhaseName(AttemptPhase phase);

// One attempt at one worker, once it has ended. A request that went out again since an idle connection turned out closed
// is still the same attempt.
struct AttemptInfo {
  std::shared_ptr<Worker> worker;
  int64_t chosen_ns = 0;      // the decision
  int64_t sent_ns = 0;        // first byte to the worker
  int64_t responded_ns = 0;   // the worker's final head complete
  int64_t first_body_ns = 0;  // its first body byte, if that was read
  int64_t end_ns = 0;
  uint64_t span_id = 0;    // that its worker was told (tracing/trace_context.h); 0: none
  std::string_view error;  // why there was no response, or why it is not whole; empty: nothing failed
  int status = 0;          // of the worker's response; 0: none
  AttemptPhase phase = AttemptPhase::kInference;
  bool reused = false;  // the connection had been used before
  bool beside = false;  // another worker's stream went on instead
};

struct RequestInfo {
  int64_t wall_us = 0;        // Unix time of the head, microseconds
  int64_t head_ns = 0;        // request head complete
  int64_t body_ns = 0;        // request body complete, or streaming began
  int64_t queue_ns = 0;       // time in the queue (a duration)
  int64_t chosen_ns = 0;      // decision made
  int64_t connected_ns = 0;   // connection to the worker ready
  int64_t sent_ns = 0;        // first byte to the worker
  int64_t responded_ns = 0;   // the worker's final head complete
  int64_t first_body_ns = 0;  // its first body byte
  int64_t end_ns = 0;

  std::string request_id;
  std::string client;
  std::string method;
  std::string path;  // without query
  std::string model;
  std::unique_ptr<SessionInfo> session;      // null: it names none
  std::unique_ptr<IdentityInfo> identity;    // null: clients are not told apart
  std::unique_ptr<ContinuedInfo> continued;  // null: its worker ended it, or no other might
  Route route = Route::kOther;
  bool stream = false;  // the response is an event stream
  ExchangeEnd end = ExchangeEnd::kDone;
  int status = 0;  // sent to the client; 0: none

  // Not by a response that was relayed, or made by the router, as a whole.
  bool ended_early() const { return !error.empty() || end > ExchangeEnd::kNoDone; }
  // The response was cut, or is one of a failure, by its worker.
  bool broke_off() const {
    return end == ExchangeEnd::kWorkerGone || end == ExchangeEnd::kWorkerError ||
           end == ExchangeEnd::kTimeout;
  }
  // From the body to the first choice of a worker, without the time in the queue; nullopt: none was chosen.
  std::optional<int64_t> decision_ns() const;

  std::string_view error;    // code of our own error response, or why the exchange was cut; empty if neither
  std::string_view refusal;  // why admission rejected it; usually empty
  std::string_view stopped_at;        // the step that was the last one (proxy/steps/steps.cc)
  std::string_view bad_request_rule;  // label of the rule that rejected the request; usually empty

  std::shared_ptr<Worker> worker;  // null: the request reached no worker
  std::optional<Decision> decision;
  std::string_view policy;  // that made it, by its name; empty: the router's only one
  absl::InlinedVector<AttemptInfo, 1> attempts_made;  // in the order of their ends
  uint32_t attempts = 0;                              // sends to a worker
  uint32_t retries = 0;            // attempts after the first, which may have been at other workers
  bool retries_exhausted = false;  // the last failure was passed on since no attempts were left
  bool reused = false;             // the connection to the worker had been used before
  bool stale_retry = false;        // a kept connection turned out closed; sent again on a fresh one

  uint32_t client_stalls = 0;  // waits for the client to take more of the response
  uint32_t worker_stalls = 0;  // waits for the worker to take more of the request
  uint32_t keepalives = 0;     // comments sent while the client waited for its stream
  uint64_t bytes_in = 0;       // request body
  uint64_t bytes_out = 0;      // response body
  uint32_t prefill_tokens =
      0;  // of the prompt, to compute at its worker as the decision estimated; 0: not known
  bool prefills_alone = false;  // no other prompt waited there
  std::optional<uint64_t> prompt_tokens;
  std::optional<uint64_t> completion_tokens;
  std::optional<uint64_t> cached_tokens;

  std::unique_ptr<PdInfo> pd;           // null: the fleet has no stages
  std::unique_ptr<RequestTrace> trace;  // null: it is not traced

  std::string_view
      cache;  // hit, miss, bypass; empty: the response cache is off, or the route is no inference
  std::string_view cache_reason;  // why it was no hit, if there is more to say
  int64_t cache_ns = 0;           // of the lookup

  std::unique_ptr<PromptReading> prompt;  // for the traffic log; null: it is not to be logged there
  // Of a stream that does not report its tokens, approximately; 0 if neither that log nor the client's tenant needs them.
  uint64_t events = 0;
};

}  // namespace vllm_router
