// Request: what the steps of one request share (step.h), from its head to the worker's response. Its client's side is
// the Downstream (downstream.h), its workers' side the Attempts (attempts.h). What a single step needs to keep is in
// `state`.
//
//   head ── body ── model ── key ── plan ──▶ attempts ──▶ response        read by the steps in this order
//   `────── Forget(), once nothing is sent again ──────´
//
//   ReceivedHead      what the client wants             received_head.h
//   RequestBody       what it sends                     request_body.h
//   EligibleWorkers   which workers may get it          eligible_workers.h
//   BodyEdits         what they get instead             body_edits.h
//   RequestInfo       what is told about it             proxy/telemetry/request_info.h
//
// Every wait of a step is in `scope`. Belongs to one Exchange, which owns it. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "net/timer_wheel.h"
#include "proxy/api/request_id.h"
#include "proxy/client/cancel_scope.h"
#include "proxy/exchange/attempts.h"
#include "proxy/exchange/body_edits.h"
#include "proxy/exchange/eligible_workers.h"
#include "proxy/exchange/received_head.h"
#include "proxy/exchange/request_body.h"
#include "proxy/exchange/request_state.h"
#include "proxy/exchange/retry_loop.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/permit.h"
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

struct Request {
  Request(Exchange& exchange, Connection& connection, Downstream& client);

  Exchange& exchange;
  Connection& connection;
  Downstream& client;
  IoThread& thread;
  const Settings& settings;  // the connection's
  const Pipeline& pipeline;

  // What was received.
  ReceivedHead head;
  std::optional<RequestBody> body;
  bool stream_body = false;  // the body plan
  RequestId id;

  // What was found out about it.
  RoutingKey key;
  EligibleWorkers workers;
  BodyEdits edits;
  bool client_restricted = false;   // this is the client's only request, by the quarantine
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
  // Serves it by other attempts than the RetryLoop's. REQUIRES: those before are over; they go.
  void UseAttempts(std::unique_ptr<Attempts> other);
  // The callback gets this request.
  void ArmDeadline(int64_t ms, Timer::Callback callback);
  // Arms the deadline of the whole response.
  void ArmTotalDeadline(int64_t ms);
  // Frees what only attempts need. REQUIRES: attempts->sent(), or none is made.
  void Forget();
};

// In front of prefill and decode workers.
bool HasStages(const Request& request);
// The access that its route takes, by the settings.
Access AccessOf(const Request& request);
// What workers are told about the client.
ClientSide ClientSideOf(const Request& request);
// Its body may name a stored response.
bool MayContinueResponse(const Request& request);
// The traffic log includes it: work for a model.
bool IsRecorded(const Request& request);
// Keeps what the traffic log says of the prompt.
void KeepPrompt(Request& request, const RequestView& view);

}  // namespace vllm_router
