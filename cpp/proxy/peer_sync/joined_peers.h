// JoinedPeers: a router that is not served tells others what it does and hears of them (peer_rounds.h), on a thread of its
// own. Ray Serve, LiteLLM and the like keep their own connections and choose in several processes.
//
//   StatusOr<std::unique_ptr<JoinedPeers>> peers = JoinedPeers::Join(router, options);
//   …                      // the router is used as before
//   (*peers)->Stop();      // the others are told; the destructor does the same
//
// Health of workers, limits and admins are not its business: its host has its own. In a child by fork() the thread is not
// there: nothing is told or heard, and Stop() does nothing. All methods from any thread.
#pragma once

#include <sys/types.h>

#include <memory>

#include "base/status.h"
#include "proxy/peer_sync/peer_sync_report.h"
#include "worker/worker.h"

namespace vllm_router {

class Router;
struct ServerOptions;

class JoinedPeers {
 public:
  // Of the options only those of peer_sync. InvalidArgument and FailedPrecondition name the one that is wrong; that Redis is
  // down is no mistake.
  static StatusOr<std::unique_ptr<JoinedPeers>> Join(
      std::shared_ptr<Router> router, const ServerOptions& options);
  ~JoinedPeers();
  JoinedPeers(const JoinedPeers&) = delete;
  JoinedPeers& operator=(const JoinedPeers&) = delete;

  // Waits until the others are told, a second at most, and the thread has ended.
  void Stop();
  bool running() const;  // false, too, in a child by fork()

  // As it was last; of a child by fork() an empty one.
  PeerSyncReport Report() const;
  // The worker's cache is known to be empty: the others are told.
  void TellForgotten(WorkerId worker);

 private:
  struct Parts;

  explicit JoinedPeers(std::unique_ptr<Parts> parts);
  bool IsForked() const;

  const pid_t process_;
  std::unique_ptr<Parts> parts_;
};

}  // namespace vllm_router
