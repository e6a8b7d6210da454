#include "routing/router.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
#include "routing/request_fields.h"

namespace vllm_router {
namespace {

// Estimates of policies.md 2.6, until a model's own figures are learned.
constexpr uint64_t kBytesPerToken = 4;
constexpr uint64_t kMeanOutputTokens = 256;

// ceil(bytes / kBytesPerToken), at least 1.
uint32_t EstimatePromptTokens(const RequestView& request) {
  uint64_t tokens;
  if (request.token_ids) {
    tokens = request.token_ids->size();
  } else {
    const uint64_t bytes = request.prompt ? request.prompt->size()
                           : request.body ? request.body->size()
                                          : request.body_bytes;
    tokens = bytes / kBytesPerToken + (bytes % kBytesPerToken != 0);
  }
  return static_cast<uint32_t>(std::clamp<uint64_t>(tokens, 1, UINT32_MAX));
}

// Who is there, and why each of them may not be chosen.
std::string NobodyEligible(const FleetView& fleet) {
  if (fleet.members().empty()) {
    return "no worker can take the request: the fleet has 0 workers; add one with add_worker(url) or "
           "--worker-urls";
  }
  size_t unhealthy = 0;
  size_t draining = 0;
  size_t excluded = 0;  // they would serve, but not this request: tried already, or named by the caller
  for (const FleetView::Member& member : fleet.members()) {
    if (!member.healthy) {
      ++unhealthy;
    } else if (member.draining) {
      ++draining;
    } else {
      ++excluded;
    }
  }
  return Concat(
      "no worker can take the request: the fleet has ", fleet.members().size(),
      fleet.members().size() == 1 ? " worker" : " workers", ", of which ", unhealthy, " unhealthy, ",
      draining, " draining and ", excluded, " excluded; add a worker, or wait until one is healthy");
}

}  // namespace

StatusOr<std::shared_ptr<Router>> Router::Create(const RouterOptions& options) {
  if (options.data_parallel_size < 1 || options.data_parallel_size > kMaxWorkers) {
    return absl::InvalidArgumentError(Concat(
        "intra_node_data_parallel_size is ", options.data_parallel_size,
        "; it is the number of ranks per worker URL and must be between 1 and ", kMaxWorkers,
        " (default 1)"));
  }
  if (options.session_key.headers.size() > kMaxKeyHeaders) {
    return absl::InvalidArgumentError(Concat(
        "hash_key_headers has ", options.session_key.headers.size(), " names; at most ", kMaxKeyHeaders,
        " are looked for: name only the headers that tell sessions apart, best first"));
  }
  StatusOr<std::unique_ptr<Policy>> policy = MakePolicy(options.policy);
  ROUTER_RETURN_IF_ERROR(policy.status());
  std::shared_ptr<Router> router(new Router(options, std::move(*policy)));
  ROUTER_RETURN_IF_ERROR(router->AddWorkers(options.worker_urls));
  return router;
}

Router::Router(const RouterOptions& options, std::shared_ptr<Policy> policy)
    : options_(options),
      policy_(std::move(policy)),
      needs_(policy_->Needs()),
      session_keys_(options.session_key),
      registry_([policy = policy_](const FleetView& next) { return policy->Plan(next); }) {}

Status Router::AddWorkers(std::span<const std::string> urls, double weight) {
  std::vector<std::string> names;
  for (const std::string& url : urls) {
    const StatusOr<WorkerUrl> parsed = ParseWorkerUrl(url);
    ROUTER_RETURN_IF_ERROR(parsed.status());
    if (options_.data_parallel_size == 1 || parsed->rank) {
      names.push_back(parsed->url);
      continue;
    }
    for (uint32_t rank = 0; rank < options_.data_parallel_size; ++rank)
      names.push_back(Concat(parsed->url, "@", rank));
  }
  std::vector<WorkerRegistry::NewWorker> workers;
  for (const std::string& name : names) workers.push_back({.url = name, .weight = weight});
  return registry_.AddAll(workers);
}

bool Router::NeedsBody(std::span<const HeaderField> headers) const {
  return Has(needs_, KeyParts::kSession | KeyParts::kBodyDigest) && !session_keys_.HasHeader(headers);
}

RoutingKey Router::MakeKey(const RequestView& request) const {
  RoutingKey key;
  MakeKey(request, &key);
  return key;
}

void Router::MakeKey(const RequestView& request, RoutingKey* key) const {
  std::optional<RequestFields> parsed;
  if (Has(needs_, KeyParts::kSession | KeyParts::kBodyDigest)) session_keys_.Find(request, key, &parsed);
  if (!Has(needs_, KeyParts::kPromptTokens)) return;
  key->prompt_tokens = EstimatePromptTokens(request);
  // The limit on the output is worth reading, but a body is not parsed for it alone unless it is small.
  if (request.fields == nullptr && !parsed && request.body && request.body->size() <= kSmallBodyBytes &&
      !Has(needs_, KeyParts::kSession | KeyParts::kBodyDigest)) {
    parsed = ParseRequestFields(*request.body, request.body_is_padded);
  }
  const RequestFields* fields = request.fields != nullptr ? request.fields : parsed ? &*parsed : nullptr;
  uint64_t output = kMeanOutputTokens;
  if (fields != nullptr && fields->max_tokens) output = std::min(output, *fields->max_tokens);
  key->expected_output = static_cast<uint32_t>(output);
}

StatusOr<Ticket> Router::Select(const RoutingKey& key, const FleetView& fleet) {
  const std::optional<Decision> decision = policy_->Choose(key, fleet);
  if (!decision) return absl::UnavailableError(NobodyEligible(fleet));
  const std::shared_ptr<Worker>& worker = fleet.members()[decision->position].worker;
  worker->selections.fetch_add(1, std::memory_order_relaxed);
  // No policy of today finds a part of the prompt on a worker, so all of it is to be computed there.
  const LoadShare share{
      .queued_prefill = key.prompt_tokens,
      .expected_output = key.expected_output,
      .context = key.prompt_tokens};
  return Ticket(policy_, worker, *decision, share);
}

}  // namespace vllm_router
