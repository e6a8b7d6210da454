// WorkerSearch: the worker for a request at a data plane, by the rules of the proxy: its model, what the policy reads of it,
// and the choice among the workers that a data plane can be told and that are in the request's subset.
//
//   search.ReadHead();                            then RequestInfo has its method, path and route
//   co_await search.ResolveNames();               of workers whose URLs spell out no address
//   if (auto rejection = search.FindModel()) …
//   search.MakeKey();
//   search.Select()                               a worker, a rejection, or neither: all have --max-worker-requests
//
// It reads the stream's head and body, so the body until the choice only. One thread.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "net/task.h"
#include "picker/ext_proc_stream.h"
#include "policy/routing_key.h"
#include "proxy/exchange/eligible_workers.h"
#include "proxy/exchange/worker_choice.h"
#include "proxy/picker/pick_rejection.h"
#include "proxy/picker/worker_endpoints.h"
#include "proxy/telemetry/request_info.h"
#include "routing/ticket.h"

namespace vllm_router {

struct IoThread;
struct ModelPools;
struct Settings;

class WorkerSearch {
 public:
  // All outlive it.
  WorkerSearch(IoThread& thread, const Settings& settings, const ExtProcStream& stream, RequestInfo& info);

  // REQUIRES: the stream has its head.
  void ReadHead();
  // Without ":method" and its like.
  const std::vector<HeaderField>& fields() const { return fields_; }
  std::string_view path() const { return path_; }
  // The body says the model, or the policy reads it.
  bool needs_body() const;

  // Ends soon after Cancel(), in a later turn of the loop.
  Task<void> ResolveNames();
  void Cancel() { endpoints_.Cancel(); }

  std::optional<PickRejection> FindModel();
  void MakeKey();
  RoutingKey& key() { return key_; }
  void ForgetKey() { key_ = {}; }

  struct Found {
    std::optional<WorkerChoice::Selected> selected = {};
    std::optional<PickRejection> rejection = {};
  };
  Found Select();
  // Endpoints for attempts after the one at `chosen`, the policy's choices without it: at most `count`, all of other
  // workers that may be chosen now. Nothing is reserved at these.
  std::vector<std::string> Alternatives(const Worker& chosen, size_t count);

  std::string EndpointOf(const Worker& worker) const { return endpoints_.Of(worker); }
  // The load of this request at the worker of an endpoint. Nullopt: it is none of its workers.
  std::optional<Ticket> TicketAt(std::string_view endpoint);
  const EligibleWorkers& workers() const { return workers_; }

 private:
  bool ReadsModel() const;
  std::optional<PickRejection> FindWorkersOf(
      const std::shared_ptr<const FleetView>& fleet, std::string name, bool must_exist);
  // It can be named to the data plane, and is in the request's subset.
  bool Passes(const Worker& worker) const;
  bool PassesAny() const;

  IoThread& thread_;
  const Settings& settings_;
  const ExtProcStream& stream_;
  RequestInfo& info_;
  std::vector<HeaderField> fields_;  // within stream_, as are the next two
  std::string_view path_;
  std::string_view query_;
  RoutingKey key_;
  EligibleWorkers workers_;
  WorkerEndpoints endpoints_;
};

}  // namespace vllm_router
