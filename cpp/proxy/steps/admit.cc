#include "proxy/steps/admit.h"

#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/exchange/worker_gate.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/permit.h"
#include "proxy/thread/server_limits.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// A client that leaves gives up its place. If its body has not been read, only the end of its connection
// can be watched for.
Task<Verdict> Wait(Request& request, bool again) {
  Permit& permit = request.permit;
  const int64_t timeout_ms = request.settings.queue_timeout_ms;
  const int64_t waited_before_ns = permit.waited_ns();
  OnCancel leave(request.scope, [&permit] { permit.Leave(); });
  if (request.stream_body) request.client.watch().BeginEnd();
  request.thread.limits.slow_uploads.MakeRoom(1);
  Permit::End end = Permit::End::kHeld;
  if (again) {
    end = co_await permit.Requeue(timeout_ms);
  } else {
    end = co_await permit.Acquire(1, timeout_ms);
  }
  request.client.watch().StopEnd();
  request.info.queue_ns += permit.waited_ns() - waited_before_ns;
  if (end == Permit::End::kHeld || request.is_cancelled()) co_return Verdict::kNext;
  co_await request.client.Reject(
      end == Permit::End::kTimeout ? HttpError::kQueueTimeout : HttpError::kQueueFull);
  co_return Verdict::kEnd;
}

bool MustWait(Request& request) { return !request.permit.TryAcquire(1); }

Task<Verdict> Admit(Request& request) { return Wait(request, /*again=*/false); }

}  // namespace

// Another request may be able to use the permit.
Task<Verdict> WaitForWorker(Request& request) {
  IoThread& thread = request.thread;
  thread.telemetry.steps_back.fetch_add(1, std::memory_order_relaxed);
  if (request.workers.gate != nullptr) {
    const Verdict again = co_await request.workers.gate->WaitAgain();
    co_return again;
  }
  const Verdict verdict = co_await Wait(request, /*again=*/true);
  // If more than one worker has a free place, wake the next waiter now instead of when this request
  // ends.
  if (verdict == Verdict::kNext && !request.is_cancelled() && request.workers.model == nullptr &&
      thread.router->FreePlaces(*thread.fleet.Get()) > 1) {
    request.permit.WakeNext();
  }
  co_return verdict;
}

extern constexpr Step kAdmitStep = {.name = "admit", .begin = &MustWait, .run = &Admit};

}  // namespace vllm_router
