// EligibleWorkers: which workers a request may go to by what it is: its model, the stages that serve it, and the stored
// response that it names. Which of these may be chosen now is in the fleet's view, and which one is, the policy's choice.
//
// Belongs to one Request. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "proxy/exchange/requested_model.h"
#include "routing/model_alias.h"
#include "worker/worker.h"

namespace vllm_router {

class WorkerGate;
struct IoThread;

struct EligibleWorkers {
  // Which stages serve it: kNone in a fleet without stages; else one of the first stage, one that decodes alone, or both.
  enum class Stages : uint8_t { kNone, kFirst, kDecodeAlone, kBoth };

  std::unique_ptr<RequestedModel> model;  // null: any worker will do
  // By which the client calls the model, of the request's settings; null: by its name.
  const ModelAliases::Alias* alias = nullptr;
  int64_t model_wait_ns = 0;  // for a worker of it
  WorkerGate* gate =
      nullptr;  // which of them may have the first attempt; null: all. A step's, which outlives the attempts
  Stages stages = Stages::kNone;
  std::optional<WorkerId> holder;  // of the response that the request names

  // The stage of the worker that gets the request first, where a fleet has stages.
  Stage first_stage() const { return stages == Stages::kDecodeAlone ? Stage::kDecode : Stage::kPrefill; }
  // Not any worker will do.
  bool are_restricted() const { return model != nullptr || stages != Stages::kNone; }
  // The workers in rotation now, at the first stage.
  std::shared_ptr<const FleetView> Now(IoThread& thread) const;
  // There are some in rotation, and none has a free place under --max-worker-requests.
  bool AreFull(IoThread& thread) const;
};

}  // namespace vllm_router
