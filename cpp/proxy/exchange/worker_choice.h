// WorkerChoice: the SELECT of an attempt: a worker for the next attempt, with its load reserved and its circuit
// breaker's pass. Usually it is the policy's choice among all workers of the newest snapshot. What earlier attempts
// taught makes that fleet smaller:
//
//   attempted, or refused by its breaker   left out, while there are others
//   in back-off (Retry-After)              passed over, while there are others
//   endangered                             likewise, after a loss: it has a request that was in flight at a lost worker
//
// Workers that Request::only refuses are not chosen at all, as if the fleet had none of them.
// A worker in doubt (worker/hang_detector.h) gets one request now and then. If no breaker admits a request, the worker
// whose breaker opened first gets it (panic mode, after Envoy's).
//
//   WorkerChoice choice(thread, settings, {.key = &key, .path = head.path, .model = model});
//   while (std::optional<WorkerChoice::Selected> selected = choice.Select(…)) { … choice.SetAttempted(id); }
//   choice.error(), message(), all_full()     why there is none
//
// Belongs to one exchange. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <absl/container/inlined_vector.h>

#include "proxy/api/error_response.h"
#include "routing/ticket.h"
#include "worker/circuit_breaker.h"
#include "worker/fleet_view.h"

namespace vllm_router {

class RequestedModel;
class WorkerGate;
struct RoutingKey;
struct IoThread;
struct Settings;

// The workers that a request may go to by its stage and model, now. `model` null: any worker will do; `stage`: of a
// fleet with stages.
std::shared_ptr<const FleetView> FleetFor(IoThread& thread, const RequestedModel* model, Stage stage);

class WorkerChoice {
 public:
  struct Request {
    const RoutingKey* key = nullptr;
    std::string_view path;
    // The only worker that will do, whatever its state, and whether --max-worker-requests holds for it.
    std::optional<WorkerId> pinned = {};
    bool pinned_work = false;
    Stage stage = Stage::kAll;              // of a fleet with stages
    const RequestedModel* model = nullptr;  // null: any worker will do
    WorkerGate* gate = nullptr;             // for the first attempt; null: all workers may have it
    // Which workers may have the request, in any attempt; null: all. For Select() without a pinned worker; outlives the
    // choice.
    const std::function<bool(const Worker& worker)>* only = nullptr;
  };

  // A worker with reserved load, admitted by its circuit breaker.
  struct Selected {
    Ticket ticket;
    std::optional<BreakerPass> pass;
  };

  struct How {
    bool after_loss = false;   // a worker was lost with this request
    bool untried = false;      // only a worker without an attempt
    bool transferred = false;  // the prompt's blocks come from another worker
    std::optional<WorkerId> preferred = {};
    const Worker* source = nullptr;  // the prefill worker of these blocks: they must fit (kv_group)
    std::span<const std::string> without_groups = {};  // these kv_groups are left out
    // If there is no other: one that was attempted, or whose breaker admits no request.
    bool last_resort = true;
  };

  WorkerChoice(IoThread& thread, const Settings& settings) : thread_(thread), settings_(settings) {}

  void Begin(const Request& request) { request_ = request; }
  // Whether the first attempt may go to a worker in doubt, to find out whether it serves: early if another worker would
  // get the request then, else when no such request has come for a while.
  enum class Probe : uint8_t { kNever, kLate, kEarly };
  void set_probe(Probe probe) { probe_ = probe; }
  bool pinned() const { return request_.pinned.has_value(); }

  // Empty: none may be chosen. If there was an attempt, its failure is more informative than error().
  std::optional<Selected> Select(const How& how);
  // The decode worker that serves the request without prefill, before any attempt. Empty: two workers do.
  struct Bypass {
    Selected selected;
    uint32_t uncached_tokens;
    uint32_t saved_tokens;
  };
  std::optional<Bypass> SelectBypass();
  void SetAttempted(WorkerId worker) { attempted_.push_back(worker); }
  bool any_attempted() const { return !attempted_.empty(); }
  // `with_room`: one that would get the request at once.
  bool AnyUntried(bool with_room = false) const;

  // After Select() was empty.
  HttpError error() const { return error_; }
  const std::string& message() const { return message_; }
  bool all_full() const { return all_full_; }  // for want of room under --max-worker-requests

  std::shared_ptr<const FleetView> Fleet() const { return FleetFor(thread_, request_.model, request_.stage); }

 private:
  // Which workers are passed over while there are others: none, those in back-off (Retry-After), or also
  // those with a request that was in flight at a lost worker.
  enum class PassOver : uint8_t { kNone, kBackoff, kBackoffAndEndangered };

  std::optional<Selected> SelectPinned(Ticket ticket);
  std::optional<Selected> SelectInPanic(const How& how);
  std::optional<Selected> SelectInDoubt(const How& how);
  bool MayHavePath(const Worker& worker) const;
  bool IsFull(const Worker& worker) const;
  bool Passes(const Worker& worker) const { return request_.only == nullptr || (*request_.only)(worker); }
  StatusOr<Ticket> Choose(const How& how);
  StatusOr<Ticket> ChooseOpen(const How& how);
  FleetView Eligible(const How& how);
  FleetView Without(const How& how, std::span<const WorkerId> attempted, PassOver which) const;
  std::nullopt_t Fail(HttpError error, std::string message = {});

  IoThread& thread_;
  const Settings& settings_;
  Request request_;
  std::shared_ptr<const FleetView> fleet_;
  absl::InlinedVector<WorkerId, 4> attempted_;
  absl::InlinedVector<WorkerId, 4> refused_;  // by their breakers, after they had been chosen
  HttpError error_{};
  std::string message_;
  bool all_full_ = false;
  Probe probe_ = Probe::kNever;
};

}  // namespace vllm_router
