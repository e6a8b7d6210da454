// Request: what the steps of one request share (step.h), from its head to the worker's response. Its client's side is
// the Downstream (downstream.h), its workers' side the Attempts (attempts.h). What a single step needs to keep is in
// `state`.
//
//   head ── body ── model ── key ── plan ──▶ attempts ──▶ response        read by the steps in this order
//   `────── Forget(), once nothing is sent again ──────´
//
// Every wait of a step is in `scope`. Belongs to one Exchange, which owns it. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/head_parser.h"
#include "net/timer_wheel.h"
#include "proxy/api/request_id.h"
#include "proxy/client/cancel_scope.h"
#include "proxy/exchange/attempts.h"
#include "proxy/exchange/request_body.h"
#include "proxy/exchange/request_state.h"
#include "proxy/exchange/requested_model.h"
#include "proxy/exchange/retry_loop.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/permit.h"
#include "routing/body_map.h"
#include "routing/body_patch.h"
#include "routing/request_view.h"

namespace vllm_router {

class Connection;
class Downstream;
class Exchange;
class Pipeline;
class Relay;
struct IoThread;
struct Settings;

enum class CancelReason : uint8_t {
  kNone,
  kClientGone,
  kSlowClient,
  kBodyFailed,  // the request body broke off while it was being streamed
  kIdleTimeout,
  kTotalTimeout,
  kSlowWorker,  // took nothing that a WebSocket client sent
  kShutdown,
  kDrained,     // its worker is draining, and the drain timeout passed
  kWorkerDead,  // its worker was found dead, and the grace for running requests has passed
};

// What cut a response that had begun, as an error's code; empty for the client and the worker's own end.
std::string_view CodeOfCut(CancelReason reason);

// Of a fleet without stages any one; else one of the first stage, one that decodes alone, or one of each stage.
enum class Workers : uint8_t { kOne, kFirstStage, kDecodeAlone, kBothStages };

struct Request {
  Request(Exchange& exchange, Connection& connection, Downstream& client);
  ~Request();

  Exchange& exchange;
  Connection& connection;
  Downstream& client;
  IoThread& thread;
  const Settings& settings;  // the connection's
  const Pipeline& pipeline;

  // What was received.
  std::unique_ptr<RequestHeadParser> parser;
  const RequestHead* head = nullptr;  // null before it was read, and while relaying once not needed
  struct Rewritten {
    std::string path;    // without dot segments
    std::string target;  // without an alias of a model in its query
  };
  std::unique_ptr<Rewritten> rewritten;  // null: the head's are as they came
  std::optional<RequestBody> body;
  bool stream_body = false;  // the body plan
  RequestId id;

  // What was found out about it.
  RoutingKey key;
  std::unique_ptr<RequestedModel> model;  // null: any worker will do
  int64_t model_wait_ns = 0;              // for a worker of it
  const BodyMap* members = nullptr;       // of its body; null: no step has read them
  // Its body without what no client may say to a worker; null: it is as it came.
  const SplicedBody* stripped = nullptr;
  struct EditedMessage {
    std::vector<BodyInsertion> edits;
    SplicedBody copy;  // for a request that one worker serves
  };
  std::unique_ptr<EditedMessage> edited_message;  // on top of that; null: nothing is inserted
  std::optional<WorkerId> holder;                 // of the response that the request names
  Workers workers = Workers::kOne;                // that serve it
  bool client_restricted = false;                 // this is the client's only request, by the quarantine
  bool may_need_no_worker = false;  // its response may be at hand: a full queue does not reject it
  RequestState state;

  // How it is going.
  CancelScope scope{std::span<const std::string_view>()};
  CancelReason cancelled = CancelReason::kNone;
  RequestBody::End body_end = RequestBody::End::kOk;
  Permit permit;          // from its admission to the end
  bool proxied = false;   // counted in in_flight
  bool relaying = false;  // a response that has begun
  Timer deadline;         // of the step
  Timer total_deadline;   // of the response
  bool worker_failed = false;
  bool lease_reusable = false;
  uint64_t tunnelled_in = 0;  // bytes that the client sent after the switch of protocols
  RequestInfo info;
  RetryLoop retry_loop;
  std::unique_ptr<Attempts> other_attempts;  // instead, if a step has made some
  Attempts* attempts;

  // Ends the exchange early; the first reason counts.
  void Cancel(CancelReason reason);
  bool is_cancelled() const { return cancelled != CancelReason::kNone; }

  const RouteInfo& route() const { return RouteOf(info.route); }
  bool fully_read() const { return body.has_value() && body->complete(); }
  bool has_stages() const;
  // The access that its route takes, by the settings.
  Access access() const;
  // What workers are told about the client.
  ClientSide client_side() const;
  // The stage of the worker that gets it first, where a fleet has stages.
  Stage first_stage() const;
  // The workers that it may go to, now.
  std::shared_ptr<const FleetView> fleet() const;
  // Its body may name a stored response.
  bool may_continue_response() const;
  // The traffic log includes it: work for a model.
  bool is_recorded() const;
  // Keeps what the traffic log says of the prompt.
  void KeepPrompt(const RequestView& view);
  Rewritten& Rewrite();
  void ArmDeadline(int64_t ms, Timer::Callback callback);
  // Arms the deadline of the whole response.
  void ArmTotalDeadline(int64_t ms);
  // Frees what only attempts need. REQUIRES: attempts->sent(), or none is made.
  void Forget();
};

}  // namespace vllm_router
