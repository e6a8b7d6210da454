// OtherRouters: what the rest of a server tells the other routers of its fleet, and asks about them. A server that is
// connected with others offers one (Services); without it this router is alone. Any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace vllm_router {

class PeerTopic;
struct AdminFact;
struct Worker;

class OtherRouters {
 public:
  // The worker does not respond to this router.
  virtual void Suspect(const std::shared_ptr<Worker>& worker) = 0;
  // An admin had the worker's cache emptied.
  virtual void CacheEmptied(const std::shared_ptr<Worker>& worker) = 0;
  // An admin's call about a worker succeeded at this router. Where it counts, for the reply: at "all 3 routers" or at
  // "this router of 3"; empty: there are no others.
  virtual std::string TellAdmin(AdminFact fact) = 0;
  // Before the threads run, and once each. The topic outlives the server's services.
  virtual void AddTopic(PeerTopic* topic) = 0;

  struct Presence {
    bool connected = false;  // frames of the others arrive
    uint32_t routers = 1;    // that run, this one among them
    bool leads = false;      // connected, and no other that runs has a lower id
  };
  virtual Presence presence() const = 0;

 protected:
  ~OtherRouters() = default;
};

}  // namespace vllm_router
