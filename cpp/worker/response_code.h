// ResponseCode: what a worker's response to an attempt was, as far as that tells what is wrong with it. The statuses by
// which workers refuse requests are told apart, all others by their class.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace vllm_router {

enum class ResponseCode : uint8_t { k1xx, k2xx, k3xx, k401, k403, k404, k429, k4xx, k5xx, kNone };
inline constexpr size_t kResponseCodeCount = static_cast<size_t>(ResponseCode::kNone) + 1;
// 0, and what is no status: none.
ResponseCode ResponseCodeOf(int status);
std::string_view ResponseCodeName(ResponseCode code);  // 2xx, 401, 5xx, none, …

}  // namespace vllm_router
