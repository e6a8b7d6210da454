// The routing key of a request.
#pragma once

namespace vllm_router {

struct Request;

// Makes it from the head and from what is held of the body; again, once more is known of its tokens.
void MakeKey(Request& request);

}  // namespace vllm_router
