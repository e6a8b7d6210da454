// The headers that the OpenAI library sends with a request.
#pragma once

#include "base/header_field.h"

namespace vllm_router {

inline constexpr HeaderField kUsualHeaders[] = {
    {"Host", "router:30000"},
    {"User-Agent", "OpenAI/Python 1.99"},
    {"Accept", "*/*"},
    {"Accept-Encoding", "gzip, deflate"},
    {"Connection", "keep-alive"},
    {"Content-Type", "application/json"},
    {"Content-Length", "4096"},
    {"Authorization", "Bearer x"},
    {"X-Stainless-Lang", "python"},
    {"X-Stainless-OS", "Linux"}};

}  // namespace vllm_router
