#include "grpc/health_check.h"

#include "base/proto_wire.h"

namespace vllm_router {
namespace {

constexpr uint32_t kServiceField = 1;
constexpr uint32_t kStatusField = 1;

}  // namespace

std::optional<std::string_view> ReadHealthCheckRequest(std::string_view message) {
  std::string_view service;
  ProtoReader in(message);
  while (const std::optional<ProtoReader::Field> field = in.Next()) {
    if (field->number == kServiceField && field->type == WireType::kBytes) service = field->bytes;
  }
  if (!in.ok() || service.size() > kMaxHealthServiceBytes) return std::nullopt;
  return service;
}

std::string WriteHealthCheckResponse(ServingStatus status) {
  std::string bytes;
  ProtoWriter out(&bytes);
  if (status != ServingStatus::kUnknown) out.Varint(kStatusField, static_cast<uint64_t>(status));
  out.Close();
  return bytes;
}

HealthReply RespondToHealthCall(
    std::string_view method, std::string_view request,
    const std::function<std::optional<ServingStatus>(std::string_view service)>& state_of) {
  if (method != kHealthCheckPath.substr(kHealthServicePath.size())) {
    return {
        .code = GrpcCode::kUnimplemented, .message = {}, .text = "the health service has one method, Check"};
  }
  const std::optional<std::string_view> service = ReadHealthCheckRequest(request);
  if (!service) {
    return {
        .code = GrpcCode::kInvalidArgument,
        .message = {},
        .text = "the message is no grpc.health.v1.HealthCheckRequest with a service of at most 256 bytes"};
  }
  const std::optional<ServingStatus> state = state_of(*service);
  if (!state) {
    return {.code = GrpcCode::kNotFound, .message = {}, .text = "there is no service of this name"};
  }
  return {.code = GrpcCode::kOk, .message = WriteHealthCheckResponse(*state), .text = {}};
}

}  // namespace vllm_router
