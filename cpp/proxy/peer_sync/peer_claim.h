// PeerClaim: the right to tell others what a router does. Each has one: what is told is taken from the router's index, and
// peers' loads are written to its workers, so two that did either would undo each other. Held until it is destroyed. Thread-safe.
#pragma once

#include <memory>

#include "base/status.h"

namespace vllm_router {

class Router;

class PeerClaim {
 public:
  // InvalidArgument: the router has told others already, and does so still.
  static StatusOr<PeerClaim> Take(const Router& router);

 private:
  struct Release {
    void operator()(const Router* router) const;
  };
  explicit PeerClaim(const Router* router) : router_(router) {}

  std::unique_ptr<const Router, Release> router_;
};

}  // namespace vllm_router
