// Fetch: one small request of our own to a worker, answer and all: for health checks, the merged model list, and what
// else only a worker knows.
//
//   StatusOr<Fetched> models = co_await Fetch(lane, worker.url, "/v1/models", 5'000);
//
// Never touches load, metrics of requests, or the pool of connections. One lane.
//
// What is done for somebody who may stop wanting it, such as a client that leaves, is an Errand: it knows its fetches
// and its pause, and Cancel() ends them at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/status.h"
#include "net/resolver.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct Lane;
class Connector;
class Delay;
class Socket;
struct FetchDeadline;

struct Fetched {
  int status = 0;
  std::string body;
};

class Errand {
 public:
  // `via`: of the request that it is done for; what the errand sends goes by the same way. Must outlive it.
  explicit Errand(std::span<const std::string_view> via) : via_(via) {}
  Errand(const Errand&) = delete;
  Errand& operator=(const Errand&) = delete;

  void Cancel();  // its coroutine goes on in a later turn of the loop
  bool cancelled() const { return cancelled_; }
  std::span<const std::string_view> via() const { return via_; }

  // Another one that is done for this one, which ends it as well; null when it has ended.
  void set_inner(Errand* inner) { inner_ = inner; }

  // It may take minutes, so a server that stops does not wait for it.
  void set_long() { long_ = true; }
  bool is_long() const { return long_; }

  // False when it is cancelled, before or meanwhile.
  Task<bool> Pause(Lane& lane, int64_t nanos);
  void EndPause();  // before its time; likewise in a later turn

 private:
  friend struct FetchDeadline;
  const std::span<const std::string_view> via_;
  bool cancelled_ = false;
  bool long_ = false;
  std::unordered_set<FetchDeadline*> fetches_;
  Delay* pause_ = nullptr;
  Errand* inner_ = nullptr;
};

// GET, with the workers' key if `url` receives it. Unavailable where there is no connection or it breaks, DeadlineExceeded where no response
// comes in time, NotFound for a name without addresses, FailedPrecondition for a response that is not HTTP or longer
// than 8 MiB. Parameters by value: the task outlives its caller's temporaries. `errand` may be null.
//
// `outsiders_key`: not null where no worker is asked but somebody else, who gets this key instead of the workers'; it
// outlives the task. His certificate comes from an authority that the system trusts.
Task<StatusOr<Fetched>> Fetch(
    Lane& lane, Errand* errand, WorkerUrl url, std::string target, int64_t timeout_ms,
    const std::string* outsiders_key = nullptr);

// The same with POST and a JSON body.
Task<StatusOr<Fetched>> Post(
    Lane& lane, Errand* errand, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms);

// What is waited for: all of the response, or its status, where no more is of use.
enum class Part : uint8_t { kWhole, kStatus };

// A request whose head is written already. `body` outlives the task.
Task<StatusOr<Fetched>> Send(
    Lane& lane, Errand* errand, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
    Part part = Part::kWhole);

// What ends a fetch before its time, whichever step it is in.
struct FetchDeadline {
  FetchDeadline(Lane& lane, Errand* errand);
  ~FetchDeadline();
  static void Pass(void* deadline);

  Lane& lane;
  Errand* const errand;
  bool passed = false;
  std::shared_ptr<Resolver::Waiter> name;  // that is being looked up
  Connector* connector = nullptr;
  Socket* socket = nullptr;
  Timer timer;
};

}  // namespace vllm_router
