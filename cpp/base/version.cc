#include "base/version.h"

namespace vllm_router {

std::string_view Version() { return ROUTER_VERSION; }

}  // namespace vllm_router
