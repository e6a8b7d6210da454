// How a Status leaves C++: as the Python exception in errors.cc's table, with the status's message.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace vllm_router {

// REQUIRES: !status.ok(), and the GIL.
[[noreturn]] void Throw(const Status& status);

// The exception of that name of python/vllm_router/errors.py, which no Status has. REQUIRES: the GIL.
[[noreturn]] void ThrowAs(const char* exception, const std::string& message);

inline void ThrowIfError(const Status& status) {
  if (!status.ok()) Throw(status);
}

template <typename T>
T ValueOrThrow(StatusOr<T> result) {
  if (!result.ok()) Throw(result.status());
  return *std::move(result);
}

}  // namespace vllm_router
