// For bindings of _core_testing, whose tests check code and message; the public API translates in errors.cc.
#pragma once

#include <pybind11/pybind11.h>

#include <utility>

#include "base/status.h"

namespace vllm_router {

inline void RaiseIfError(const Status& status) {
  if (!status.ok()) throw pybind11::value_error(status.ToString(absl::StatusToStringMode::kWithNoExtraData));
}

template <typename T>
T ValueOrRaise(StatusOr<T> value) {
  RaiseIfError(value.status());
  return *std::move(value);
}

}  // namespace vllm_router
