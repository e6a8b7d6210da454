// Version: what `vllm-router --version`, `vllm_router.__version__` and the `Server` names say. Its one source is
// pyproject.toml, which CMake reads.
#pragma once

#include <string_view>

namespace vllm_router {

std::string_view Version();

}  // namespace vllm_router
