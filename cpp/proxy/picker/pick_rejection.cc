#include "proxy/picker/pick_rejection.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "base/time_units.h"
#include "proxy/api/settings.h"

namespace vllm_router {
namespace {

constexpr std::string_view kDroppedName = "x-llm-d-request-dropped-reason";

std::string_view DroppedReason(PickResult result, HttpError error) {
  if (error == HttpError::kShuttingDown) return "rejected-shutting-down";
  if (error == HttpError::kQueueTimeout) return "rejected-ttl-expired";
  if (result == PickResult::kShed) return "rejected-saturated";
  if (result == PickResult::kNoWorkers || result == PickResult::kSubsetEmpty) return "rejected-no-endpoints";
  return {};
}

std::string MessageOf(const PickRejection& rejection, const Settings& settings) {
  if (rejection.error == HttpError::kBodyTooLarge) {
    return Concat(
        "The request body is longer than the ", settings.max_payload_size,
        " bytes that this router accepts (--max-payload-size).");
  }
  return rejection.message.empty() ? std::string(ErrorOf(rejection.error).message) : rejection.message;
}

}  // namespace

void Reject(
    const PickRejection& rejection, const Settings& settings, ExtProcStream* stream, RequestInfo* info) {
  const ErrorRow& row = ErrorOf(rejection.error);
  const std::string message = MessageOf(rejection, settings);
  const std::string body = ErrorBodyFor(
      info->route, {.status = row.status,
                    .message = message,
                    .type = row.type,
                    .code = row.code,
                    .param = row.param,
                    .request_id = info->request_id});
  const std::string seconds =
      Concat(std::max<int64_t>(1, (rejection.retry_after_ns + kNanosPerSecond - 1) / kNanosPerSecond));
  std::vector<HeaderField> headers = {{.name = "content-type", .value = "application/json"}};
  if (row.retry_after || rejection.retry_after_ns != 0)
    headers.push_back({.name = "retry-after", .value = seconds});
  const std::string_view dropped = DroppedReason(rejection.result, rejection.error);
  if (!dropped.empty()) headers.push_back({.name = kDroppedName, .value = dropped});
  const std::string details = Concat("vllm_router_", row.code);
  stream->Reject({.status = row.status, .headers = headers, .body = body, .details = details});
  info->status = row.status;
  info->error = row.code;
  if (rejection.result == PickResult::kShed) info->refusal = row.code;
}

}  // namespace vllm_router
