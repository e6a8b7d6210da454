// What the threads of a server tell the services of the control thread about workers, and what these have the threads do.
#pragma once

#include "proxy/control/hang_watch.h"

namespace vllm_router {

class HealthChecker;
class ModelService;
class OtherRouters;
class ServerThreads;

// What requests find out about workers goes to these, from now on. Before the threads run; all outlive them.
// `other_routers`: null if there are none.
void SendHealthSignals(
    const ServerThreads& threads, HealthChecker& health, ModelService& models, OtherRouters* other_routers);

// What HangWatch has the data threads do. `threads` outlives it.
HangWatch::Threads HangWatchThreads(const ServerThreads& threads);

}  // namespace vllm_router
