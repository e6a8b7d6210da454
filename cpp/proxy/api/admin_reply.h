// AdminReply: the response of one of our own endpoints.
#pragma once

#include <string>
#include <string_view>

namespace vllm_router {

struct AdminReply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  std::string_view error_code;  // for the access log; empty unless it is an error
};

}  // namespace vllm_router
