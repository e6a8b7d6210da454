// AttemptConnection: the connection of an attempt to its worker (LEASE): taken from the pool or made, and returned to the
// pool or closed.
//
//   AttemptConnection connection(thread);
//   if (!connection.TakeIdle(worker.id)) failed = co_await connection.Connect(worker, timeout_ms);
//   …                                      connection.socket()
//   connection.Release(/*reusable=*/true);
//
// It is closed early for two reasons, and whoever waits for its socket looks which one it was:
//
//   Close()       the request, or the worker, has ended: a connect that is in progress ends, too
//   GiveUp(why)   a limit has passed, or the worker was found dead: given_up()
//
// It has one deadline, that of the step at hand: of connecting, then of the response's first byte, then of the rest.
// Belongs to one attempt. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "net/resolver.h"
#include "net/socket.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/api/error_response.h"
#include "proxy/client/upstream_pool.h"
#include "worker/worker.h"

namespace vllm_router {

struct IoThread;

class AttemptConnection {
 public:
  explicit AttemptConnection(IoThread& thread) : thread_(thread) {}
  AttemptConnection(const AttemptConnection&) = delete;
  AttemptConnection& operator=(const AttemptConnection&) = delete;

  // An idle one of the pool. False: there is none.
  bool TakeIdle(WorkerId worker);
  // A new one. Returns why there is none; nullopt: there is. The error is meaningless after Close().
  Task<std::optional<HttpError>> Connect(const Worker& worker, int64_t timeout_ms);

  bool is_leased() const { return lease_ != nullptr; }  // from either to Release(), even if closed meanwhile
  // REQUIRES: is_leased().
  Socket& socket() { return lease_->socket; }
  bool is_reused() const { return lease_->reused; }
  // Whether bytes have come that were not read.
  bool HasUnread() const { return is_leased() && lease_->socket.HasUnread(); }

  // For good. Any time.
  void Close();
  // The first reason counts. REQUIRES: is_leased().
  void GiveUp(HttpError why);
  std::optional<HttpError> given_up() const { return given_up_; }
  void ForgetGivenUp() { given_up_.reset(); }

  // 0: never. Arming one replaces the other.
  void GiveUpAfter(int64_t timeout_ms);         // with kFirstByteTimeout
  void InterruptReadAfter(int64_t timeout_ms);  // the connection stays open
  void DisarmDeadline() { deadline_.Disarm(); }

  // To the pool, or closed. Again has no effect.
  void Release(bool reusable);

 private:
  static void OnConnectTimeout(void* connection);
  static void OnFirstByteTimeout(void* connection);
  static void OnReadTimeout(void* connection);

  IoThread& thread_;
  UpstreamPool::Lease lease_;
  std::shared_ptr<Resolver::Waiter> name_;  // for the worker's host, during its lookup
  Connector* connector_ = nullptr;          // a connect in progress
  bool connect_timed_out_ = false;
  bool closed_ = false;
  std::optional<HttpError> given_up_;
  Timer deadline_;
};

}  // namespace vllm_router
