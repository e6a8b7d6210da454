// WorkerDeclaration: a worker as its source declares it. This is the one list of what a source can say of a worker.
//
//   WorkerSpec (Python)   URLs of the settings   POST /workers   a registration   a fact of a peer
//            `--------------------'--------------------'---------------'----------------'
//                            |  WorkerDeclaration, of an engine
//                         Router          one for each rank
//                     WorkerRegistry      checks it
//                   DeclaredFleet::Row    keeps it; what reads a field reads it there
//
// A new field is a member with its default, and a line of ForEachField() if sources in Python set it.
//
// Plain data; any thread.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "base/status.h"
#include "worker/stage.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct WorkerDeclaration {
  WorkerUrl url;                     // without a rank: all ranks of the engine
  WorkerRole role = {};              // another one: another engine, as with `incarnation`
  uint32_t ranks = 0;                // of the engine, if the URL names none; 0: as many as the router says
  double weight = 1.0;               // relative capacity
  bool ready = true;                 // false: it stays in the fleet, and gets no new requests
  bool leaving = false;              // it ends soon: its requests may finish, and it gets no new ones
  std::optional<double> drain_secs;  // for that; null: the server's drain timeout
  std::string incarnation;           // another one, if neither is empty: the engine has started anew
  std::string detail;                // for people, such as "pod=default/vllm-7"
  std::vector<std::string> models;   // that it serves; empty: as it says itself

  uint32_t weight_thousandths() const { return static_cast<uint32_t>(std::round(weight * kWeightOne)); }
  std::optional<int64_t> drain_ms() const {
    return drain_secs ? std::optional(static_cast<int64_t>(*drain_secs * 1000)) : std::nullopt;
  }

  // visit(name, member) for each member but the URL, by its name in Python's WorkerSpec.
  template <typename Visitor>
  void ForEachField(Visitor visit) {
    visit("worker_type", role.stage);
    visit("bootstrap_port", role.bootstrap_port);
    visit("kv_group", role.kv_group);
    visit("data_parallel_size", ranks);
    visit("weight", weight);
    visit("ready", ready);
    visit("leaving", leaving);
    visit("drain_secs", drain_secs);
    visit("incarnation", incarnation);
    visit("detail", detail);
    visit("models", models);
  }

  friend bool operator==(const WorkerDeclaration&, const WorkerDeclaration&) = default;
};

// The worker of a URL, with the defaults. InvalidArgument as ParseWorkerUrl(). `receives_api_key`: false where a third
// party may have named it.
inline StatusOr<WorkerDeclaration> DeclareWorker(std::string_view url, bool receives_api_key = true) {
  StatusOr<WorkerUrl> parsed = ParseWorkerUrl(url);
  if (!parsed.ok()) return parsed.status();
  WorkerDeclaration worker;
  worker.url = *std::move(parsed);
  worker.url.receives_api_key = receives_api_key;
  return worker;
}

}  // namespace vllm_router
