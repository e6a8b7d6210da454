// JSON text of a Python value: what `json.dumps(value, separators=(",", ":"), ensure_ascii=False,
// allow_nan=False)` gives in UTF-8, the same bytes that the openai client sends. So a dict and its
// serialized bytes are the same request to the router, down to the digest of its body.
//
// Written here because json.dumps with these arguments costs 3 us before the first byte; this costs 0.1
// us and the copying. With the GIL; runs no Python code unless a key or a number is of a subclass.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <string>

namespace vllm_router {

enum class JsonObjects : uint8_t {
  kRefused,
  // An object that is no JSON value but has model_dump() (a pydantic model), or else a __dict__, is
  // written as that dict, without members that are None and without names that begin with '_'. Runs
  // Python code.
  kDumped,
};

// Appends. TypeError for a value that JSON does not have, ValueError for NaN and infinities.
void AppendJson(pybind11::handle value, std::string* text, JsonObjects objects = JsonObjects::kRefused);

}  // namespace vllm_router
