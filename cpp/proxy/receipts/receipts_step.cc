// Of each request that was given to a worker, by this router or by a gateway that asked it, a receipt is written at its end: what the decision expected, and what came of
// it. One request in --receipt-detail-every has its decision explained, so that its receipt has the candidates.
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

#include "proxy/api/routes.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/receipts/receipts_feature.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/delegated_requests.h"
#include "proxy/thread/io_thread.h"
#include "receipts/receipt_log.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// Whether the candidates of this request's decision are to be kept. Where there are stages, two decisions would share the
// list.
bool IsExplained(IoThread& thread, const RequestInfo& info) {
  auto* const writer = thread.features.Find<ReceiptWriter>();
  if (writer == nullptr || !RouteOf(info.route).computes) return false;
  return thread.fleet.Get()->stages() == nullptr && writer->TakeTurn();
}

void Explain(RoutingKey* key) {
  if (key->explanation == nullptr) key->explanation = std::make_shared<Explanation>();
}

bool BeginReceipt(Request& request) {
  if (IsExplained(request.thread, request.info)) Explain(&request.key);
  return false;
}

void BeginDelegated(DelegatedRequest& request) {
  if (IsExplained(request.thread, request.info)) Explain(&request.key);
}

std::optional<int64_t> Since(int64_t from_ns, int64_t ns) {
  return ns != 0 ? std::optional(ns - from_ns) : std::nullopt;
}

// `request_id`: the client's. `attempts`: those that are known.
void WriteReceipt(IoThread& thread, const RequestInfo& info, std::string_view request_id, uint32_t attempts) {
  auto* const writer = thread.features.Find<ReceiptWriter>();
  if (writer == nullptr || !info.decision || info.worker == nullptr) return;
  const PdInfo* const pd = info.pd.get();
  // With transferred blocks, what decode reports as cached was cached at prefill.
  const bool is_own = pd == nullptr || !pd->transferred;
  writer->Write(
      {.request_id = request_id,
       .model = info.model,
       .policy = info.policy,
       .route = RouteOf(info.route).label,
       .end = ExchangeEndName(info.end),
       .worker = info.worker.get(),
       .prefill = pd != nullptr ? pd->prefill.get() : nullptr,
       .decision = &*info.decision,
       .block_tokens = thread.router->options().policy.block_size,
       .prompt_tokens = info.prompt_tokens,
       .cached_tokens = is_own ? info.cached_tokens : std::nullopt,
       .wall_us = info.wall_us,
       .queue_ns = info.queue_ns,
       .decision_ns = info.decision_ns(),
       .first_token_ns = Since(info.head_ns, info.first_body_ns),
       .total_ns = Since(info.head_ns, info.end_ns),
       .pd_uncached = pd != nullptr ? pd->uncached_tokens : 0,
       .pd_saved = pd != nullptr ? pd->saved_tokens : 0,
       .status = info.status,
       .attempts = attempts,
       .tenant = info.identity != nullptr ? std::string_view(info.identity->tenant) : std::string_view(),
       .priority_class = info.identity != nullptr ? info.identity->priority_class : std::string_view()});
}

void EndReceipt(Request& request) {
  WriteReceipt(
      request.thread, request.info, request.id.id, static_cast<uint32_t>(request.info.attempts_made.size()));
}

void EndDelegated(DelegatedRequest& request) {
  WriteReceipt(request.thread, request.info, request.info.request_id, request.info.attempts);
}

}  // namespace

extern constexpr DelegatedRequests::Hooks kDelegatedReceipts = {
    .begin = &BeginDelegated, .end = &EndDelegated};
extern constexpr Step kReceiptStep = {.name = "receipt", .begin = &BeginReceipt, .on_end = &EndReceipt};

}  // namespace vllm_router
