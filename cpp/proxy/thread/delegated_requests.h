// DelegatedRequests: what features do about requests whose worker this router chooses, and which then go there without it,
// such as those of gateways (proxy/picker). The steps of a proxied request are not called for them.
//
//   DelegatedRequests::Of(server.limits.features).Add({.begin = &BeginTurn, .end = &EndTurn});       a feature, at the start
//   if (auto* delegated = thread.limits.features.Find<DelegatedRequests>()) delegated->Begin(request);    whoever decides
//
// Hooks are functions without state; what they keep of a request is in DelegatedRequest::state. They are added before the
// threads run; afterwards any thread may call them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "base/type_map.h"
#include "policy/routing_key.h"
#include "proxy/telemetry/request_info.h"

namespace vllm_router {

struct IoThread;

struct DelegatedRequest {
  IoThread& thread;
  RoutingKey& key;
  RequestInfo& info;
  std::span<const HeaderField> fields = {};
  std::string_view path = {};  // without query
  std::string_view body = {};  // as far as it was read; of begin alone
  uint64_t body_bytes = 0;     // of all of it, or so far as that is known
  TypeMap state = {};
};

class DelegatedRequests {
 public:
  // Each may be null.
  struct Hooks {
    // The body has to be read for `begin`. The head has been read.
    bool (*needs_body)(const DelegatedRequest&) = nullptr;
    // The key is made; the choice follows.
    void (*begin)(DelegatedRequest&) = nullptr;
    // The request is over, whatever became of it. Without a `begin` if it got none.
    void (*end)(DelegatedRequest&) = nullptr;
  };

  // Those of the server, whose features these are.
  static DelegatedRequests& Of(TypeMap& features) {
    auto* const found = features.Find<DelegatedRequests>();
    return found != nullptr ? *found : *features.Own(std::make_unique<DelegatedRequests>());
  }

  void Add(const Hooks& hooks) { hooks_.push_back(hooks); }
  bool NeedBody(const DelegatedRequest& request) const {
    for (const Hooks& each : hooks_) {
      if (each.needs_body != nullptr && each.needs_body(request)) return true;
    }
    return false;
  }
  void Begin(DelegatedRequest& request) const {
    for (const Hooks& each : hooks_) {
      if (each.begin != nullptr) each.begin(request);
    }
  }
  void End(DelegatedRequest& request) const {
    for (const Hooks& each : hooks_) {
      if (each.end != nullptr) each.end(request);
    }
  }

 private:
  std::vector<Hooks> hooks_;
};

}  // namespace vllm_router
