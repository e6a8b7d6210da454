// Service: work of a server beside its requests, on the control thread. The server owns a list of them, starts them all when it
// serves and stops them all at the end; a new one is one line in Server's constructor.
#pragma once

namespace vllm_router {

class Service {
 public:
  virtual ~Service() = default;

  // All on the control thread. Stop() takes effect in one of the loop's next turns, and for what is under way when that ends;
  // nothing of the service runs any more once it has ended().
  virtual void Start() = 0;
  virtual void Stop() = 0;
  virtual bool ended() const = 0;
};

}  // namespace vllm_router
