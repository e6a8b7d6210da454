// Of each request that was given to a worker a receipt is written at its end: what the decision expected, and what came of
// it. One request in --receipt-detail-every has its decision explained, so that its receipt has the candidates.
#include <memory>
#include <optional>

#include "proxy/api/routes.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/receipts/receipts_feature.h"
#include "proxy/telemetry/request_info.h"
#include "proxy/thread/io_thread.h"
#include "receipts/receipt_log.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

bool BeginReceipt(Request& request) {
  auto* const writer = request.thread.features.Find<ReceiptWriter>();
  if (writer == nullptr || !request.route().computes) return false;
  // Where there are stages, two decisions would share the list.
  if (request.thread.fleet.Get()->stages() != nullptr || !writer->TakeTurn()) return false;
  if (request.key.explanation == nullptr) request.key.explanation = std::make_shared<Explanation>();
  return false;
}

std::optional<int64_t> Since(int64_t from_ns, int64_t ns) {
  return ns != 0 ? std::optional(ns - from_ns) : std::nullopt;
}

void EndReceipt(Request& request) {
  auto* const writer = request.thread.features.Find<ReceiptWriter>();
  const RequestInfo& info = request.info;
  if (writer == nullptr || !info.decision || info.worker == nullptr) return;
  const PdInfo* const pd = info.pd.get();
  // With transferred blocks, what decode reports as cached was cached at prefill.
  const bool is_own = pd == nullptr || !pd->transferred;
  writer->Write(
      {.request_id = request.id.id,
       .model = info.model,
       .policy = info.policy,
       .route = request.route().label,
       .end = ExchangeEndName(info.end),
       .worker = info.worker.get(),
       .prefill = pd != nullptr ? pd->prefill.get() : nullptr,
       .decision = &*info.decision,
       .block_tokens = request.thread.router->options().policy.block_size,
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
       .attempts = static_cast<uint32_t>(info.attempts_made.size()),
       .tenant = info.identity != nullptr ? std::string_view(info.identity->tenant) : std::string_view(),
       .priority_class = info.identity != nullptr ? info.identity->priority_class : std::string_view()});
}

}  // namespace

extern constexpr Step kReceiptStep = {.name = "receipt", .begin = &BeginReceipt, .on_end = &EndReceipt};

}  // namespace vllm_router
