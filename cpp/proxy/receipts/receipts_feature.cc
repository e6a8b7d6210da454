#include "proxy/receipts/receipts_feature.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "http/query.h"
#include "proxy/admin/admin_context.h"
#include "proxy/admin/feature.h"
#include "proxy/admin/replies.h"
#include "proxy/api/server_options.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/server_limits.h"
#include "receipts/receipt_json.h"
#include "receipts/receipt_log.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

constexpr std::string_view kOnePath = "/admin/receipts/";

Status Add(const ServerParts& server) {
  const uint32_t per_thread = server.router.options().receipts;
  if (per_thread == 0) return absl::OkStatus();
  ReceiptLog* const log = server.limits.features.Own(std::make_unique<ReceiptLog>(
      server.threads.size(),
      ReceiptLog::Options{
          .per_thread = per_thread, .candidates_every = server.options.receipt_detail_every}));
  for (size_t i = 0; i < server.threads.size(); ++i)
    server.threads[i]->features.Refer<ReceiptWriter>(&log->writer(i));
  DelegatedRequests::Of(server.limits.features).Add(kDelegatedReceipts);
  return absl::OkStatus();
}

AdminReply Off() {
  return ErrorReply(
      HttpError::kInvalidArgument,
      "receipts is 0, so no receipts are kept; start the router with --receipts 8192, the default", 404);
}

StatusOr<ReceiptFilter> FilterOf(std::string_view query) {
  std::vector<ReceiptFilter::Parameter> parameters;
  while (const std::optional<QueryPair> pair = TakeQueryPair(&query)) {
    if (pair->name.empty() && !pair->value) continue;
    std::optional<std::string> value = PercentDecoded(pair->value.value_or(""), true);
    if (!value) {
      return absl::InvalidArgumentError(Concat(
          "the query parameter ", Quoted(pair->name), " is ", Quoted(*pair->value),
          "; a '%' in it must precede two hexadecimal digits"));
    }
    parameters.emplace_back(pair->name, *std::move(value));
  }
  return ReceiptFilter::Parse(parameters);
}

// The page is that of the query, as it was sent.
StatusOr<std::string> ListDetail(const AdminRequest& request) {
  const StatusOr<ReceiptFilter> filter = FilterOf(request.query);
  if (!filter.ok()) return filter.status();
  return std::string(request.query);
}

AdminReply List(AdminContext& /*admin*/, const PageCall& call) {
  const auto* const log = call.thread.limits.features.Find<ReceiptLog>();
  if (log == nullptr) return Off();
  return {.body = ReceiptsJson(log->Find(*FilterOf(call.detail)))};
}

StatusOr<std::string> OneDetail(const AdminRequest& request) {
  const std::string_view encoded = request.path.substr(kOnePath.size());
  std::optional<std::string> id = PercentDecoded(encoded, false);
  if (id) return *std::move(id);
  return absl::InvalidArgumentError(Concat(
      "the request id in the path is ", Quoted(encoded),
      "; a '%' in it must precede two hexadecimal digits"));
}

AdminReply One(AdminContext& /*admin*/, const PageCall& call) {
  const auto* const log = call.thread.limits.features.Find<ReceiptLog>();
  if (log == nullptr) return Off();
  if (const std::optional<ReceiptLog::Row> row = log->FindOne(call.detail))
    return {.body = ReceiptJson(*row)};
  return ErrorReply(
      HttpError::kNotFound,
      Concat(
          "no receipt is kept of request ", Quoted(call.detail),
          "; the last ones are listed by /admin/receipts, and --receipts sets how many are kept"));
}

constexpr OwnEndpoint kOwnEndpoints[] = {
    {.path = "/admin/receipts", .methods = "GET, HEAD", .render = &List, .detail = &ListDetail},
    {.path = "/admin/receipts/{id}", .methods = "GET, HEAD", .render = &One, .detail = &OneDetail}};

std::span<const OwnEndpoint> ReceiptEndpoints() { return kOwnEndpoints; }

constexpr EndpointTable kTables[] = {&ReceiptEndpoints};

}  // namespace

extern constexpr Feature kReceiptsFeature = {.name = "receipts", .add = &Add, .endpoints = kTables};

}  // namespace vllm_router
