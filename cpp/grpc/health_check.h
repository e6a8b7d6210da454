// The messages of gRPC's health service, and how a call of it ends.
//
//   POST /grpc.health.v1.Health/Check   request: service 1 (string)   response: status 1 (enum ServingStatus)
//
// Only Check is served: List and Watch end with kUnimplemented, after which clients that know Watch use Check.
// The fields: grpc-proto, grpc/health/v1/health.proto.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "grpc/grpc_frame.h"

namespace vllm_router {

inline constexpr std::string_view kHealthServicePath = "/grpc.health.v1.Health/";
inline constexpr std::string_view kHealthCheckPath = "/grpc.health.v1.Health/Check";

enum class ServingStatus : uint8_t { kUnknown = 0, kServing = 1, kNotServing = 2, kServiceUnknown = 3 };

// The service whose state is requested, empty for that of the process; nullopt: the bytes are no message, or its name has
// more than kMaxHealthServiceBytes. It lies within `message`.
inline constexpr size_t kMaxHealthServiceBytes = 256;
std::optional<std::string_view> ReadHealthCheckRequest(std::string_view message);

std::string WriteHealthCheckResponse(ServingStatus status);

// The end of a call of `method`, the path behind kHealthServicePath, and its one message if the code is kOk.
struct HealthReply {
  GrpcCode code = GrpcCode::kOk;
  std::string message;    // of the response
  std::string_view text;  // of an error
};
// `state_of`: of a service, nullopt if there is none of that name.
HealthReply RespondToHealthCall(
    std::string_view method, std::string_view request,
    const std::function<std::optional<ServingStatus>(std::string_view service)>& state_of);

}  // namespace vllm_router
