// Resolver: resolves names to addresses without blocking the loop, and caches the result. Literal
// addresses cost nothing.
//
//   StatusOr<std::vector<Address>> addresses = co_await resolver.Resolve("gpu-0", waiter);
//
//   resolved       30 s later                  refreshed
//   |--- fresh ----|--- stale but usable ------|--- fresh …      refreshed in the background, once at a time
//
// Only the first lookup of a name blocks its waiter, which can cancel the wait. A failed refresh keeps
// the old result, so a name server that is down delays no request. ReportFailure() marks an entry stale early:
// none of its addresses could be reached, so the host may have moved. One loop.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "net/event_loop.h"
#include "net/socket.h"
#include "net/task.h"

namespace vllm_router {

class Resolver {
 public:
  using Answer = StatusOr<std::vector<Address>>;
  // Looks a name up and calls `tell` with the result in a later turn of the loop.
  using Lookup = std::function<void(const std::string& host, std::function<void(Answer)> tell)>;

  explicit Resolver(EventLoop& loop);  // uses the system's resolver
  // `clock` must outlive it.
  Resolver(EventLoop& loop, const Clock& clock, Lookup lookup);
  Resolver(const Resolver&) = delete;
  Resolver& operator=(const Resolver&) = delete;

  // One waiting caller. Cancel() ends the wait with Unavailable, in a later turn of the loop.
  class Waiter {
   public:
    explicit Waiter(EventLoop& loop) : loop_(loop) {}
    static void Cancel(const std::shared_ptr<Waiter>& waiter);

   private:
    friend class Resolver;
    EventLoop& loop_;
    Signal told_;
    bool over_ = false;
    Answer answer_ = absl::UnavailableError("the lookup was cancelled");
  };

  // The result without a lookup: a literal address or a fresh entry.
  std::optional<std::vector<Address>> Known(const std::string& host) const;
  Task<Answer> Resolve(std::string host, std::shared_ptr<Waiter> waiter);
  void ReportFailure(const std::string& host);

 private:
  struct Entry {
    std::vector<Address> addresses;  // empty: it was never resolved
    int64_t learned_ns = 0;
    int64_t fresh_until_ns = 0;
    bool asking = false;
    std::vector<std::shared_ptr<Waiter>> waiters;
  };
  void Ask(const std::string& host);
  void Learn(const std::string& host, Answer result);
  void Forget();
  static void Tell(const std::shared_ptr<Waiter>& waiter, Answer result);

  const SteadyClock all_admitting_;
  const Clock& clock_;
  const Lookup lookup_;
  std::map<std::string, Entry> entries_;
};

}  // namespace vllm_router
