#include "worker/response_code.h"

#include <array>

namespace vllm_router {

ResponseCode ResponseCodeOf(int status) {
  switch (status) {
    case 401:
      return ResponseCode::k401;
    case 403:
      return ResponseCode::k403;
    case 404:
      return ResponseCode::k404;
    case 429:
      return ResponseCode::k429;
    default:
      break;
  }
  if (status < 100 || status > 599) return ResponseCode::kNone;
  constexpr std::array kClasses = {
      ResponseCode::k1xx, ResponseCode::k2xx, ResponseCode::k3xx, ResponseCode::k4xx, ResponseCode::k5xx};
  return kClasses[static_cast<size_t>(status / 100 - 1)];
}

std::string_view ResponseCodeName(ResponseCode code) {
  constexpr std::array<std::string_view, kResponseCodeCount> kNames = {"1xx", "2xx", "3xx", "401", "403",
                                                                       "404", "429", "4xx", "5xx", "none"};
  return kNames[static_cast<size_t>(code)];
}

}  // namespace vllm_router
