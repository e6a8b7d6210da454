#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"

namespace vllm_router {

extern constexpr Step kHeadStep = {
    .name = "head", .run = [](Request& request) { return request.client.ReadHead(); }};

}  // namespace vllm_router
