// Status and StatusOr: how an expected failure crosses from one library to another. The codes say what
// to do next; the message names the thing, the value, the limit and the remedy.
#pragma once

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace vllm_router {

using absl::Status;
using absl::StatusOr;

}  // namespace vllm_router

#define ROUTER_RETURN_IF_ERROR(expression)                                    \
  do {                                                                        \
    if (::absl::Status status_ = (expression); !status_.ok()) return status_; \
  } while (false)
