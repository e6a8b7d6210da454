// RequestedModel: which workers a request may go to by its model, and why it may go to none.
//
//   names decide?  no -> all     name listed          -> its pool; if all of it drains -> asleep
//                                not listed: there are workers that may serve anything -> these
//                                            remembered, or in --models                -> asleep: 503
//                                            else                                      -> unknown: 404
//
// FindPool() is the one resolution; FleetIn() follows the fleet on retries, in its newest view. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "proxy/api/settings.h"
#include "worker/model_catalog.h"

namespace vllm_router {

class RequestedModel {
 public:
  explicit RequestedModel(std::string name) : name_(std::move(name)) {}

  const std::string& name() const { return name_; }

  using Result = ModelPools::Result;
  static Result FindPool(
      const std::shared_ptr<const FleetView>& whole, const Settings& settings, std::string_view name,
      int64_t now_ns);
  // A request for `name` with this result.
  static void Count(const ModelPools& pools, std::string_view name, Result result);
  // After such a result: a worker may be chosen for it now.
  static bool HasWorkers(const std::shared_ptr<const FleetView>& whole, std::string_view name, Result result);

  // The part of the fleet that serves it, which is empty once all its workers have left.
  std::shared_ptr<const FleetView> FleetIn(const std::shared_ptr<const FleetView>& whole) const;

 private:
  const std::string name_;
};

// "The model `x` does not exist. Served: a, b." Names are cut and escaped; at most 20 are listed.
// Without the models that are served, if these are not for every client.
std::string UnknownModelMessage(
    std::string_view name, const ModelPools& pools, const ModelAliases& aliases, bool are_private);
std::string ModelRequiredMessage(const ModelPools& pools, bool are_private);
std::string SleepingModelMessage(std::string_view name);

}  // namespace vllm_router
