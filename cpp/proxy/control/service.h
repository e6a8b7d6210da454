// Service: work of a server other than its requests, on the control thread. The server owns a list of
// services, starts all when it serves and stops all at the end. A new one is one line in Server's
// constructor.
#pragma once

namespace vllm_router {

class Service {
 public:
  virtual ~Service() = default;

  // All on the control thread. Stop() takes effect in one of the loop's next turns, for work in flight
  // when that ends. Once ended(), nothing of the service runs any more.
  virtual void Start() = 0;
  virtual void Stop() = 0;
  virtual bool ended() const = 0;
  // Other settings (proxy/api/settings.h) are in force. Between Start() and Stop().
  virtual void FollowSettings() {}
};

}  // namespace vllm_router
