#include "proxy/admin/scale_reply.h"

#include <algorithm>
#include <boost/json.hpp>
#include <string_view>

#include "base/text.h"
#include "proxy/api/error_response.h"
#include "proxy/api/json_text.h"
#include "proxy/control/scale_report.h"

namespace vllm_router {
namespace {

namespace json = boost::json;

constexpr size_t kMostListed = 20;

AdminReply Refused(HttpError error, int status, std::string_view message) {
  const ErrorRow& row = ErrorOf(error);
  return {.status = status, .body = ErrorBody(message, row.type, row.code), .error_code = row.code};
}

std::string Names(const ScaleReport& report) {
  std::string names;
  for (size_t i = 0; i < std::min(report.models.size(), kMostListed); ++i)
    names += Concat(i == 0 ? "" : ", ", Quoted(report.models[i].name));
  if (report.models.size() > kMostListed)
    names += Concat(" and ", report.models.size() - kMostListed, " more");
  return names;
}

}  // namespace

AdminReply ScaleReply(const ScaleReport& report, const std::optional<std::string>& model) {
  if (report.models.empty()) {
    const std::string why =
        report.awaited.empty() ? "this router has just started" : Concat("waiting for ", report.awaited);
    return Refused(HttpError::kNoWorkers, 503, Concat("Nothing is known of the workers yet: ", why, "."));
  }
  if (!model && report.models.size() > 1) {
    return Refused(
        HttpError::kInvalidArgument, 400,
        Concat("The query parameter 'model' is missing; there are ", Names(report), "."));
  }
  const auto row =
      model ? std::ranges::find(report.models, *model, &ScaleReport::Model::name) : report.models.begin();
  if (row == report.models.end()) {
    return Refused(
        HttpError::kNotFound, 404,
        Concat(
            "No numbers of replicas are kept for the model ", Quoted(*model), "; there are ", Names(report),
            ". An adapter is served by the workers of its base model."));
  }
  return {
      .body = JsonText(json::object{
          {"model", row->name},
          {"ready", row->ready},
          {"pending", row->pending},
          {"draining", row->draining},
          {"saturation", row->reading.saturation},
          {"queued", row->queued},
          {"desired_replicas", row->reading.desired},
          {"removable", json::array(row->removable.begin(), row->removable.end())},
          {"stale", row->reading.stale}})};
}

}  // namespace vllm_router
