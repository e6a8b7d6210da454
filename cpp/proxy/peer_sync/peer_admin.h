// PeerAdmin: what admins say of workers at any router of a fleet is carried out at all (--peer-sync-admin).
//
//   said here        Tell()       the others are told
//   said elsewhere   CarryOut()   a worker is removed; drained, if it is here, or once it is; added once it passes its health
//                                 check, unless something else is said of it meanwhile
//
// A worker that a source of this router declares stays as that says. On the control thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "base/status.h"
#include "net/task.h"
#include "peer_sync/peer_sync.h"
#include "proxy/peer_sync/peer_streams.h"
#include "worker/worker_declaration.h"

namespace vllm_router {

class CancelScope;
class Drainer;
struct IoThread;

class PeerAdmin {
 public:
  using Warn = std::function<void(const Status&)>;

  // All outlive it.
  PeerAdmin(IoThread& thread, PeerSync& sync, const PeerStreams& streams, Drainer& drainer, Warn warn)
      : thread_(thread), sync_(sync), streams_(streams), drainer_(drainer), warn_(std::move(warn)) {}

  void Tell(AdminFact said);
  void CarryOut(const AdminFact& fact);
  // What has become possible is done, and what has ended is forgotten.
  void Turn(int64_t now_ns);
  void Stop();
  bool ended() const { return joins_.empty(); }

 private:
  Task<void> Join(AdminFact fact, WorkerDeclaration worker);
  Status MayAdd(const AdminFact& fact, const WorkerDeclaration& worker);
  bool HasOtherRole(const AdminFact& fact) const;
  bool Knows(const std::string& url);  // the fleet has such a worker, or one that a source declares
  void CarryOutDrains();

  IoThread& thread_;
  PeerSync& sync_;
  const PeerStreams& streams_;
  Drainer& drainer_;
  const Warn warn_;
  bool stopped_ = false;
  std::set<CancelScope*> joins_;             // under way
  std::map<std::string, AdminFact> drains_;  // by URL: of workers that have not joined yet
  std::set<std::string> known_urls_;         // of workers and of their hosts
  uint64_t known_version_ = ~uint64_t{0};    // of the registry's rows
  int64_t forgot_ns_ = INT64_MIN / 2;
};

}  // namespace vllm_router
