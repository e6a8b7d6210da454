// PickedRequest: one HTTP request at a data plane, from the head of its stream to the end of its response: it finds the
// worker, as a request to the router itself does, and has the load there until the response has ended.
//
//   stream ──▶ Take() ──▶ rate limit ──▶ model, key ──▶ permit ──▶ WorkerSearch ──▶ messages with the choice
//                                                        └── may wait in the queue
//          ──▶ Take() ──▶ PickedWorker: the response's head, its body if that is sent, its end
//          ──▶ End()      the stream is over, at any time
//
// What it writes goes to its Peer. It is shared, since a wait may outlast the stream: End() ends the wait, and from then on
// nothing is written. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "grpc/grpc_frame.h"
#include "net/task.h"
#include "picker/ext_proc_stream.h"
#include "policy/decision.h"
#include "proxy/exchange/worker_choice.h"
#include "proxy/picker/pick_rejection.h"
#include "proxy/picker/picked_worker.h"
#include "proxy/picker/picker_counts.h"
#include "proxy/picker/worker_search.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/body_claim.h"
#include "proxy/thread/delegated_requests.h"
#include "proxy/thread/permit.h"

namespace vllm_router {

struct IoThread;
struct Settings;

class PickedRequest : public std::enable_shared_from_this<PickedRequest> {
 public:
  class Peer {
   public:
    virtual void Send(int32_t stream, std::string message) = 0;
    virtual void Finish(int32_t stream, GrpcCode code, std::string_view text) = 0;
    // Much of what was sent is still here. CatchUp() follows, if the request lives.
    virtual bool is_behind(int32_t stream) const = 0;

   protected:
    ~Peer() = default;
  };
  // How a stream ended.
  enum class Ending : uint8_t {
    kDone,      // the data plane needs no more of it
    kBroken,    // it was reset, or the connection was lost
    kShutdown,  // the router stops: the data plane goes on by itself, unless it is amid a body
  };

  // All outlive the request, but the peer until End() only.
  PickedRequest(
      IoThread& thread, const ExtProcOptions& options, PickerCounts& counts, Peer& peer, int32_t stream,
      std::string client);
  ~PickedRequest();

  void Take(std::string message);
  // What the data plane waits for.
  enum class Awaited : uint8_t {
    kNothing,
    kChoice,
    kBody,  // the rest of one that comes back by way of the stream
  };
  Awaited awaited() const;
  // What was sent is written.
  void CatchUp();
  // No more comes, and nothing is sent any more; memory for what was sent is held as long as the request lives. Further calls
  // do nothing.
  void End(Ending ending);

 private:
  void TakeRequest();
  bool Begin();
  bool IsShed();
  bool HasEnough() const;
  bool HoldBody();
  bool is_wanted() const { return peer_ != nullptr && !rejected_; }
  Task<void> Pick(std::shared_ptr<PickedRequest> self);
  bool FindModel();
  Task<bool> AwaitPermit(bool again);
  std::optional<WorkerChoice::Selected> Select();
  void Choose(WorkerChoice::Selected selected);
  void Refuse(const PickRejection& rejection);
  void TakeResponse(const ProcessingRequest& request);
  void FinishWorker(Outcome::End end);
  void Fail(const Status& status);
  void Finish();
  void Count(PickResult result);
  void SendMessages();

  IoThread& thread_;
  PickerCounts& counts_;
  Peer* peer_;  // null: the stream is over
  const int32_t id_;
  const std::shared_ptr<const Settings> settings_;
  const DelegatedRequests* const features_;  // null: none takes part
  ExtProcStream stream_;
  RequestInfo info_;
  WorkerSearch search_;
  DelegatedRequest delegated_;
  PickedWorker worker_;
  BodyClaim memory_;
  Permit permit_;
  bool begun_ = false;
  bool needs_body_ = false;
  bool picking_ = false;
  bool waiting_ = false;  // a coroutine holds this
  bool rejected_ = false;
  bool counted_ = false;  // its result
  bool finished_ = false;
  Ending ending_ = Ending::kDone;
};

}  // namespace vllm_router
