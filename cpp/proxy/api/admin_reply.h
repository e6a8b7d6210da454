// AdminReply: what an endpoint of our own answers.
#pragma once

#include <string>
#include <string_view>

namespace vllm_router {

struct AdminReply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  std::string_view error_code;  // for the record; empty unless it is an error
};

}  // namespace vllm_router
