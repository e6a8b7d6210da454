// ServerErrors holds the 5xx responses to one request's attempts until it is known whether the workers
// or the request caused them (worker/outlier_detector.h has the rule).
//
//   attempt at A: 500   Hold(A)                  retry
//   attempt at B: 200   ServedBy(B)              counts against A
//          or    500   Hold(B), no retry, Ended   counts against none, since A and B agree
//   attempt at A: 500   Hold(A), no retry, Ended  counts against A if it does worse than the fleet
//   attempt at A: 500   Hold(A), RequestIsBad     counts against none
//   the client leaves   (destroyed)              counts against none
//
// It holds the breakers' passes meanwhile. Costs nothing until there is a 5xx. Belongs to one exchange.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/time_units.h"
#include "proxy/thread/breaker_transitions.h"
#include "worker/outlier_detector.h"
#include "worker/worker.h"

namespace vllm_router {

struct IoThread;

class ServerErrors {
 public:
  ServerErrors(IoThread& thread, const BreakerOptions& options)
      : thread_(thread), window_ns_(options.window_ms * kNanosPerMs) {}

  // `worker` responded with a 5xx.
  void Hold(std::shared_ptr<Worker> worker, BreakerPass pass);
  // `worker` responded to the same request with neither a 5xx nor a request to retry later.
  void ServedBy(const Worker& worker) {
    if (!held_.empty()) CountAgainstAllBut(worker);
  }
  // There will be no further attempt.
  void Ended() {
    if (!held_.empty()) SettleAlone();
  }
  // What is held was caused by the request, whatever other workers would say.
  void RequestIsBad();
  // A stream of `worker` that had begun well ended with a server error (http/stream_tail.h): a 5xx too
  // late for another worker to show whether the request caused it. `pass` is settled.
  void EndedInError(const std::shared_ptr<Worker>& worker, BreakerPass& pass);

 private:
  struct Held {
    std::shared_ptr<Worker> worker;
    BreakerPass pass;
  };

  void CountAgainstAllBut(const Worker& worker);
  void SettleAlone();
  bool DoesWorseThanFleet(Worker& worker) const;
  void CountAgainst(
      const std::shared_ptr<Worker>& worker, BreakerPass& pass, FailedAt at, std::string_view why);

  IoThread& thread_;
  const int64_t window_ns_;
  std::vector<Held> held_;
};

}  // namespace vllm_router
