// SimulatedWorker: an HTTP/1.1 server that looks like a vLLM server from outside, for tests, demos and
// benchmarks. Its responses come at the pace of the replay's engine (batch_engine.h), with faults on
// request.
//
//   client --- POST /v1/chat/completions ---> worker     the head at once, then an event for each step that
//          <-- 200, an event at the end of a step --     brings a token, [DONE]; a client that leaves: aborted
//
//   SimulatedWorkerOptions options;
//   options.engine.coefficients.step_ms = 20;
//   StatusOr<std::unique_ptr<SimulatedWorker>> worker = SimulatedWorker::Start(options);
//   (*worker)->port();   // any free one
//
// | path                                                    | response                                   |
// |---------------------------------------------------------|--------------------------------------------|
// | POST /v1/chat/completions /v1/completions /v1/responses | as vLLM's, streamed or whole; `usage` says |
// |   /v1/messages /v1/embeddings /tokenize /detokenize     |   how many prompt tokens were cached       |
// |   /v1/messages/count_tokens /v1/responses/input_tokens  |                                            |
// |   /inference/v1/generate                                |                                            |
// | GET /v1/responses with Upgrade: websocket               | the same, an event a message               |
// | POST /v1/conversations, and what is below it            | what clients store here                    |
// | GET /v1/models /health /ping /version /load /metrics    | as vLLM's                                  |
// | POST /reset_prefix_cache                                | forgets the cache                          |
// | GET /kv_event_sources                                   | where KV events are published, or {}       |
// | POST /kv_cache_events                                   | KV events that wait to be polled, or []    |
// | GET /stats                                              | what happened here, as JSON (StatsJson)    |
// | any method, /echo and what is below it                  | what arrived: method, path, query, headers |
//
// Any request of the first row or to /echo may carry its own fault: x-sim-status, x-sim-retry-after,
// x-sim-delay-ms, x-sim-hang, x-sim-garbage, x-sim-close-early, x-sim-close-after-bytes,
// x-sim-close-after-tokens.
//
// Threads: each has a loop and its own connections; the engine is one, behind a mutex. All methods may be
// called from any thread but the loops'.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "simulation/batch_engine.h"
#include "simulation/openai_api.h"

namespace vllm_router {

// Faults affect requests of the first row and to /echo only: /health and /stats stay correct.
struct Faults {
  int status_code = 0;        // respond with this error instead; 0: none
  uint64_t fail_first_n = 0;  // only that many requests fail, later ones work; without a status code: 500
  int retry_after_s = 0;      // Retry-After on such responses; 0: no such header
  double latency_ms = 0;      // delay before the first byte
  uint64_t crash_after = 0;   // after that many requests: connections reset, port closed; 0: never
  bool hang = false;          // never respond
  bool garbage = false;       // send bytes that are not HTTP, then close
  bool close_early = false;   // close in the middle of the response's body
  int64_t close_after_bytes =
      -1;  // close after that many bytes of the response, its head included; -1: never
  int64_t close_after_tokens = -1;  // close a stream after the events of that many tokens; -1: never
  int health_status = 200;          // status of /health and /ping
  // Of the KV events; the counts begin when the faults are set.
  uint64_t kv_drop_batches = 0;     // numbered and kept for replays, but not published
  uint64_t kv_garbage_batches = 0;  // published with a payload that is not MessagePack
  bool kv_stall = false;            // nothing is published or replayed; what waits follows when this ends

  bool operator==(const Faults&) const = default;
};

// The preset "quick", with a cache of a million tokens: as large as that of a large GPU. As vLLM does,
// it computes the last token of a fully cached prompt, and with it the last page of 16.
BatchEngineOptions DefaultEngine();

struct SimulatedWorkerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free port
  int threads = 1;
  SimModel model;  // its context is at most the engine's KV memory
  BatchEngineOptions engine = DefaultEngine();
  Faults faults;
  // Any POST gets a response at once, constant JSON of this many bytes, and its body is not parsed: for
  // benchmarks without an engine. 0: off.
  size_t fixed_response_bytes = 0;
  // Connections idle for this long between two requests are closed without notice, as uvicorn does. 0:
  // never.
  double keep_alive_s = 5;
  // The head of a stream waits for the first token (SGLang) instead of being sent at once (vLLM).
  bool late_head = false;
  // What the model says where a request has tools (tool_script.h), as JSON; "": its own text.
  std::string tool_script;
  // KV events (kv_event_publisher.h). The ports: -1: none; 0: any free one.
  int kv_events_port = -1;
  int kv_events_replay_port = -1;
  size_t kv_events_buffer_steps = 10'000;  // batches kept for replays, or events for polls
  // Instead of ports: events wait to be polled, as TensorRT-LLM has it (kv_event_buffer.h).
  bool kv_events_polled = false;
  // One half of a pair (stage_worker.h): "prefill" or "decode"; "": a worker of its own.
  std::string stage;
  std::string connector = "nixl";  // the only one
  // What a decode worker does when it cannot pull: "fail" is 500, "recompute" computes the prompt itself.
  std::string kv_load_failure_policy = "fail";
  double kv_lease_s = 30;  // vLLM's kv_lease_duration
};

class StageWorker;

class SimulatedWorker {
 public:
  // InvalidArgument for an option out of range, Unavailable when it cannot listen; the message gives the
  // remedy.
  static StatusOr<std::unique_ptr<SimulatedWorker>> Start(const SimulatedWorkerOptions& options);
  ~SimulatedWorker();  // Stop()

  uint16_t port() const;
  uint16_t kv_events_port() const;  // 0: none
  uint16_t kv_events_replay_port() const;

  // Closes the port and all connections, and joins the threads. A second call has no effect.
  void Stop();

  // From the next request on. Counts of fail_first_n and crash_after start again.
  Status SetFaults(const Faults& faults);
  bool crashed() const;
  // KV events go on as after a restart of the engine: the cache is forgotten, and the next batch has number
  // 0. Returns when that is done. Blocks that requests hold stay in the cache and are not announced again.
  // FailedPrecondition without KV events.
  Status RestartKvEvents();

  // Of a worker with a stage; null: it has none.
  StageWorker* stage();

  // An object of numbers: requests, running, waiting, finished, aborted, failed, prompt_tokens,
  // cached_tokens, generation_tokens, cache_blocks, evicted_blocks, connections, open_connections; and
  // paths, an object of requests per path.
  std::string StatsJson() const;

 private:
  struct Impl;
  explicit SimulatedWorker(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace vllm_router
