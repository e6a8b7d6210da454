#include "routing/router.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "hashing/hash.h"
#include "policy/policy_registry.h"
#include "routing/learned_prompt.h"
#include "routing/router_option_table.h"

namespace vllm_router {
namespace {

// The workers of the fleet, and why each of them may not be chosen.
std::string NobodyEligible(const FleetView& fleet, const WorkerRegistry& registry) {
  const bool is_stage = fleet.stage() != Stage::kAll;
  const std::string where =
      is_stage ? Concat("the ", StageName(fleet.stage()), " stage") : std::string("the fleet");
  const auto members = std::ranges::count_if(
      fleet.members(), [](const FleetView::Member& member) { return !member.other_stage; });
  if (members == 0) {
    const std::string awaited = registry.Awaited();
    if (!awaited.empty()) {
      return Concat("no worker can take the request: ", where, " has 0 workers; waiting for ", awaited);
    }
    return Concat(
        "no worker can take the request: ", where, " has 0 workers; add one with add_worker(url) or ",
        is_stage ? Concat("--", StageName(fleet.stage())) : std::string("--worker-urls"));
  }
  size_t unhealthy = 0;
  size_t draining = 0;
  size_t resting = 0;
  size_t unpaired = 0;
  size_t open = 0;
  size_t in_doubt = 0;
  size_t others = 0;
  size_t excluded = 0;  // healthy, but excluded for this request: by earlier attempts, or by the caller
  for (const FleetView::Member& member : fleet.members()) {
    if (member.other_stage) continue;
    if (member.other_model) {
      ++others;
    } else if (!member.healthy) {
      ++unhealthy;
    } else if (member.draining) {
      ++draining;
    } else if (member.resting) {
      ++resting;
    } else if (member.pair != PairState::kReady) {
      ++unpaired;
    } else if (member.worker->breaker.state() != BreakerState::kClosed) {
      ++open;
    } else if (member.in_doubt) {
      ++in_doubt;
    } else {
      ++excluded;
    }
  }
  return Concat(
      "no worker can take the request: ", where, " has ", members, members == 1 ? " worker" : " workers",
      ", of which ", unhealthy, " unhealthy, ", draining, " draining",
      resting == 0 ? std::string() : Concat(", ", resting, " not ready"),
      unpaired == 0 ? std::string() : Concat(", ", unpaired, " that cannot be paired yet"),
      open == 0 ? std::string() : Concat(", ", open, " with an open circuit breaker"),
      in_doubt == 0 ? std::string() : Concat(", ", in_doubt, " in doubt"),
      others == 0 ? std::string() : Concat(", ", others, " that do not serve the model"), " and ", excluded,
      " excluded; add a worker, or wait until one is healthy");
}

void ListCandidates(const FleetView& fleet, Explanation* explanation) {
  explanation->candidates.clear();
  for (const uint32_t position : fleet.eligible()) {
    const Worker& worker = fleet.worker(position);
    explanation->candidates.push_back(
        {.worker = worker.id,
         .url = worker.url.url,
         .weight = worker.weight,
         .open_requests = worker.load.open_requests(),
         .outstanding_tokens = worker.load.outstanding_tokens()});
  }
  explanation->not_eligible = static_cast<uint32_t>(fleet.members().size() - fleet.eligible().size());
}

// Completes what a policy decided in this view.
void NoteLoads(const FleetView& fleet, Decision* decision) {
  const auto count = [](int64_t load) {
    return static_cast<uint32_t>(std::clamp<int64_t>(load, 0, UINT32_MAX));
  };
  const bool is_best = decision->best_matched <= decision->matched;
  const Worker& chosen = fleet.worker(decision->position);
  const Worker& best = is_best ? chosen : fleet.worker(decision->best_position);
  decision->best_worker = best.id;
  decision->loads = {
      .open = count(chosen.load.open_requests()),
      .best_open = count(best.load.open_requests()),
      .queued_tokens = count(chosen.load.queued_prefill())};
}

int64_t NanosOf(double secs) { return static_cast<int64_t>(secs * static_cast<double>(kNanosPerSecond)); }

bool MatchesPrompts(const Policy& policy) {
  const KeyParts needs = policy.Needs();
  return Has(needs, KeyParts::kBlocks) || Has(needs, KeyParts::kPrompt) ||
         Has(needs, KeyParts::kPrefixDigest);
}

StatusOr<PolicyParts> MakeDecodePolicy(const RouterOptions& options) {
  PolicyOptions own = options.decode_policy;
  if (own.policy.empty()) {
    StatusOr<PolicyOptions> inherited = InheritedDecodePolicy(options.policy);
    ROUTER_RETURN_IF_ERROR(inherited.status());
    own = *std::move(inherited);
  }
  own.block_size = options.policy.block_size;
  own.peer_sync_stride_tokens = 0;  // the other index is the one that engines and routers tell
  own.kv_index_max_entries = 0;
  return MakePolicy(own);
}

// As Choose(): the workers that are not overloaded, if there are any.
const FleetView& Unloaded(const FleetView& fleet, std::optional<FleetView>* unloaded) {
  if (!fleet.any_overloaded()) return fleet;
  unloaded->emplace(fleet.WithoutOverloaded());
  return (*unloaded)->eligible().empty() ? fleet : **unloaded;
}

// Likewise of these those that have the request's adapter, if there are any.
const FleetView& WithResidents(const FleetView& fleet, std::optional<FleetView>* residents) {
  if (fleet.residents() == nullptr) return fleet;
  residents->emplace(fleet.OnlyResidents());
  return (*residents)->eligible().empty() ? fleet : **residents;
}

// Of a request that is held out. A baseline does not weigh the loading of an adapter.
std::optional<Decision> ChooseHeldOut(const RoutingKey& key, Policy& policy, const FleetView& given) {
  std::optional<FleetView> residents;
  const FleetView& fleet = WithResidents(given, &residents);
  if (key.explanation != nullptr) ListCandidates(fleet, key.explanation.get());
  const std::optional<Decision> baseline = key.baseline->Choose(key, fleet);
  if (!baseline) return std::nullopt;
  std::optional<RoutingKey> unexplained;  // the candidates are the baseline's
  if (key.explanation != nullptr) unexplained.emplace(key).explanation = nullptr;
  std::optional<Decision> decision =
      policy.Choose(unexplained ? *unexplained : key, fleet.Only(baseline->position));
  if (decision) decision->reason = Reason::kHoldout;
  return decision;
}

// What any of them may read of a request.
KeyParts PartsOf(const Pool& pool, const RouterOptions& options) {
  if (!pool.is_staged()) return pool.policy().Needs();
  const KeyParts parts = pool.policy().Needs() | pool.policy_of(Stage::kDecode)->Needs();
  return options.bypass.uncached_tokens != 0 ? parts | pool.index()->Needs() : parts;
}

}  // namespace

StatusOr<PolicyOptions> InheritedDecodePolicy(const PolicyOptions& policy) {
  const StatusOr<PolicyParts> made = MakePolicy(policy);
  ROUTER_RETURN_IF_ERROR(made.status());
  PolicyOptions own = policy;
  if (MatchesPrompts(*made->policy)) {
    own.policy = "least_load";
    own.least_load_metric = LeastLoadMetric::kTokens;
  }
  return own;
}

StatusOr<std::shared_ptr<Router>> Router::Create(const RouterOptions& options) {
  StatusOr<PolicyParts> policy = MakePolicy(options.policy);
  ROUTER_RETURN_IF_ERROR(policy.status());
  return CreateWith(options, *std::move(policy));
}

StatusOr<std::shared_ptr<Router>> Router::CreateWith(const RouterOptions& options, PolicyParts policy) {
  ROUTER_RETURN_IF_ERROR(CheckRanges(RouterOptionTable(), options));
  if (options.session_key.headers.size() > kMaxKeyHeaders) {
    return absl::InvalidArgumentError(Concat(
        "hash_key_headers has ", options.session_key.headers.size(), " names; at most ", kMaxKeyHeaders,
        " are read: name only the headers that identify sessions, best first"));
  }
  PolicyParts decode;
  if (options.disaggregated) {
    // One index of all workers: what engines and other routers tell of decode workers is in it as well.
    if (options.bypass.uncached_tokens != 0 && policy.index == nullptr)
      policy.index = MakeKvIndex(options.policy);
    StatusOr<PolicyParts> made = MakeDecodePolicy(options);
    ROUTER_RETURN_IF_ERROR(made.status());
    decode = *std::move(made);
  }
  std::shared_ptr<Router> router(new Router(options, std::move(policy), std::move(decode)));
  ROUTER_RETURN_IF_ERROR(router->AddStatic());
  return router;
}

Router::Router(const RouterOptions& options, PolicyParts policy, PolicyParts decode)
    : options_(options),
      shared_(std::make_shared<Shared>(std::move(policy.policy), std::move(decode.policy), policy.index)),
      pool_(
          {.policy = {shared_, shared_->policy.get()}, .index = std::move(policy.index)},
          {.share = options.discovery_guard, .hold_ns = NanosOf(options.discovery_hold_secs)},
          shared_->decode == nullptr
              ? PolicyParts()
              : PolicyParts{.policy = {shared_, shared_->decode.get()}, .index = std::move(decode.index)}),
      tool_orders_(options.routing_text_tools),
      keys_(
          PartsOf(pool_, options),
          {.block_size = options.policy.block_size,
           .tokenize = options.tokenize,
           .session_key = options.session_key,
           .max_prefix_length = options.max_prefix_length,
           .routing_text_limit = options.routing_text_limit,
           .reported = pool_.index() != nullptr ? &pool_.index()->reported() : nullptr,
           .paged = &paged_,
           .tool_orders = &tool_orders_},
          shared_->lengths),
      bypass_random_(options.policy.seed) {}

Router::~Router() = default;

Status Router::SetCacheBlocks(std::string_view url, uint32_t block_tokens, uint64_t blocks) {
  const StatusOr<std::vector<std::shared_ptr<Worker>>> workers = pool_.registry().Named(url);
  if (!workers.ok()) return workers.status();
  for (const std::shared_ptr<Worker>& worker : *workers) {
    const double bytes = static_cast<double>(blocks) * block_tokens * worker->bytes_per_token.value();
    pool_.SetCacheSize(worker->id, {.bytes = static_cast<uint64_t>(bytes), .block_tokens = block_tokens});
  }
  return absl::OkStatus();
}

uint32_t Router::ranks_of(Stage stage) const {
  const uint32_t own = stage == Stage::kPrefill  ? options_.prefill_data_parallel_size
                       : stage == Stage::kDecode ? options_.decode_data_parallel_size
                                                 : 0;
  return own != 0 ? own : options_.data_parallel_size;
}

std::vector<WorkerDeclaration> Router::EachRank(std::span<const WorkerDeclaration> list) const {
  std::vector<WorkerDeclaration> workers;
  workers.reserve(list.size());
  for (const WorkerDeclaration& engine : list) {
    const uint32_t ranks = engine.ranks != 0 ? engine.ranks : ranks_of(engine.role.stage);
    const bool is_one = ranks == 1 || engine.url.rank;
    for (uint32_t rank = 0; rank < (is_one ? 1u : ranks); ++rank) {
      WorkerDeclaration& worker = workers.emplace_back(engine);
      worker.ranks = 0;
      if (!is_one) worker.url = WithRank(std::move(worker.url), rank);
    }
  }
  return workers;
}

Status Router::AddWorker(const WorkerDeclaration& worker) {
  return pool_.registry().AddAll(EachRank(std::span(&worker, 1)));
}

Status Router::AddWorker(std::string_view url) {
  const StatusOr<WorkerDeclaration> worker = DeclareWorker(url);
  return worker.ok() ? AddWorker(*worker) : worker.status();
}

// The workers of the options.
Status Router::AddStatic() {
  std::vector<WorkerDeclaration> workers;
  const auto add = [&workers](const std::string& url, const WorkerRole& role) {
    StatusOr<WorkerDeclaration> worker = DeclareWorker(url);
    if (!worker.ok()) return worker.status();
    worker->role = role;
    workers.push_back(*std::move(worker));
    return absl::OkStatus();
  };
  if (is_staged()) {
    for (const RouterOptions::StageUrl& worker : options_.prefill_urls)
      ROUTER_RETURN_IF_ERROR(
          add(worker.url, {.stage = Stage::kPrefill, .bootstrap_port = worker.bootstrap_port}));
    for (const std::string& url : options_.decode_urls)
      ROUTER_RETURN_IF_ERROR(add(url, {.stage = Stage::kDecode}));
    if (!options_.worker_urls.empty()) {
      Log(LogLevel::kWarning,
          Concat(
              options_.worker_urls.size(), " worker URLs are ignored, the first of them ",
              options_.worker_urls.front(), ": the fleet is split into prefill and decode workers"));
    }
  } else {
    for (const std::string& url : options_.worker_urls) ROUTER_RETURN_IF_ERROR(add(url, {}));
  }
  return pool_.registry().AddAll(EachRank(workers), DeclaredFleet::kStatic);
}

StatusOr<Difference> Router::Reconcile(
    std::string_view source, std::span<const WorkerDeclaration> list, bool complete,
    std::span<const std::string> deleted) {
  return pool_.registry().Reconcile(source, EachRank(list), complete, deleted, SteadyClock().NowNanos());
}

StatusOr<Difference> Router::WouldReconcile(
    std::string_view source, std::span<const WorkerDeclaration> list, bool complete) {
  return pool_.registry().WouldReconcile(source, EachRank(list), complete, SteadyClock().NowNanos());
}

Status Router::MayAddWorker(const WorkerDeclaration& worker) {
  return pool_.registry().MayAdd(EachRank(std::span(&worker, 1)));
}

LoadShare Router::ShareOf(const RoutingKey& key, const Decision& decision, bool transferred) const {
  if (transferred) {
    return {.queued_prefill = 0, .expected_output = key.expected_output, .context = key.prompt_tokens};
  }
  uint64_t bytes = 0;
  if (decision.unit == MatchUnit::kBlocks) bytes = decision.matched * keys_.block_bytes();
  if (decision.unit == MatchUnit::kBytes) bytes = decision.matched;
  const uint64_t cached = decision.unit == MatchUnit::kTokens
                              ? decision.matched
                              : static_cast<uint64_t>(static_cast<double>(bytes) / key.bytes_per_token);
  return {
      .queued_prefill =
          static_cast<uint32_t>(key.prompt_tokens > cached + 1 ? key.prompt_tokens - cached : 1),
      .expected_output = key.expected_output,
      .context = key.prompt_tokens};
}

StatusOr<Ticket> Router::Select(const RoutingKey& key, const FleetView& fleet, bool transferred) {
  ExpireTickets();
  return options_.max_worker_requests != 0 ? SelectBelow(key, fleet, transferred)
                                           : SelectAny(key, fleet, transferred);
}

void Router::ExpireTickets() const {
  if (leases_->next_due() != TicketLeases::kNever) leases_->Expire(SteadyClock().NowNanos());
}

StatusOr<Ticket> Router::SelectPinned(
    const RoutingKey& key, const FleetView& fleet, uint32_t position, bool bounded, bool transferred) {
  const FleetView only = fleet.Only(position);
  StatusOr<Ticket> ticket = bounded ? Select(key, only, transferred) : SelectAny(key, only, transferred);
  if (ticket.ok()) ticket->CallPinned();
  return ticket;
}

// The worker that has the session's prompts, where a policy that compares prompts gets none.
std::optional<Decision> Router::ChooseLast(
    const RoutingKey& key, Policy& policy, const FleetView& fleet) const {
  constexpr KeyParts kPrompts = KeyParts::kBlocks | KeyParts::kPrefixDigest | KeyParts::kPrompt;
  if (!key.last_worker || !Has(policy.Needs(), kPrompts)) return std::nullopt;
  const std::optional<uint32_t> position = fleet.Find(*key.last_worker);
  if (!position || !fleet.IsEligible(*position)) return std::nullopt;
  std::optional<Decision> decision = policy.Choose(key, fleet.Only(*position));
  if (decision) decision->reason = Reason::kSticky;
  return decision;
}

// Overloaded workers are passed over while there are others, whatever the policy knows of their load. A policy that does
// not weigh the loading of an adapter decides among the workers that have it, if it can.
std::optional<Decision> Router::Choose(const RoutingKey& key, const FleetView& given) const {
  Policy& policy = *PolicyOf(given.stage());
  std::optional<FleetView> unloaded;
  const FleetView& fleet = Unloaded(given, &unloaded);
  if (&fleet != &given && key.explanation != nullptr) {
    ListCandidates(fleet, key.explanation.get());
    key.explanation->overloaded = static_cast<uint32_t>(given.eligible().size() - fleet.eligible().size());
  }
  if (key.baseline != nullptr) return ChooseHeldOut(key, policy, fleet);
  if (std::optional<Decision> decision = ChooseLast(key, policy, fleet)) return decision;
  if (fleet.residents() == nullptr || policy.weighs_residents()) return policy.Choose(key, fleet);
  const FleetView residents = fleet.OnlyResidents();
  if (residents.eligible().empty()) return policy.Choose(key, fleet);
  if (key.explanation != nullptr) ListCandidates(residents, key.explanation.get());
  return policy.Choose(key, residents);
}

StatusOr<Ticket> Router::SelectAny(const RoutingKey& key, const FleetView& fleet, bool transferred) {
  if (key.explanation != nullptr) ListCandidates(fleet, key.explanation.get());
  std::optional<Decision> decision = Choose(key, fleet);
  if (!decision) return absl::UnavailableError(NobodyEligible(fleet, pool_.registry()));
  decision->explanation = key.explanation;
  decision->arm = key.arm;
  NoteLoads(fleet, &*decision);
  const std::shared_ptr<Worker>& worker = fleet.members()[decision->position].worker;
  worker->selections.fetch_add(1, std::memory_order_relaxed);
  return Ticket(
      ObserverOf(key, fleet, *decision, transferred), worker, *decision, ShareOf(key, *decision, transferred),
      {key.prompt_bytes, key.of_model});
}

std::vector<uint32_t> Router::FullOf(const FleetView& fleet) const {
  std::vector<uint32_t> full;
  for (const uint32_t position : fleet.eligible()) {
    if (fleet.worker(position).load.open_requests() >= int64_t{options_.max_worker_requests})
      full.push_back(position);
  }
  return full;
}

std::vector<Decision> Router::Rank(const RoutingKey& key, const FleetView& fleet, size_t count) const {
  std::vector<Decision> ranked;
  const bool bounded = options_.max_worker_requests != 0;
  FleetView view = bounded ? fleet.Without(FullOf(fleet)) : fleet;
  if (key.explanation != nullptr) ListCandidates(view, key.explanation.get());
  RoutingKey later;  // the explanation is the first decision's
  const RoutingKey* asked = &key;
  while (ranked.size() < count) {
    const std::optional<Decision> decision = Choose(*asked, view);
    if (!decision) break;
    ranked.push_back(*decision);
    view.Exclude(decision->position);
    if (key.explanation != nullptr && asked == &key) {
      later = key;
      later.explanation = nullptr;
      asked = &later;
    }
  }
  return ranked;
}

StatusOr<Ticket> Router::SelectBelow(const RoutingKey& key, const FleetView& fleet, bool transferred) {
  if (key.explanation != nullptr) ListCandidates(fleet, key.explanation.get());
  const int64_t most = options_.max_worker_requests;
  for (;;) {
    const std::vector<uint32_t> full = FullOf(fleet);
    std::optional<FleetView> smaller;
    if (!full.empty()) {
      smaller.emplace(fleet.Without(full));
      if (key.explanation != nullptr) ListCandidates(*smaller, key.explanation.get());
    }
    std::optional<Decision> decision = Choose(key, smaller ? *smaller : fleet);
    if (!decision && full.empty()) return absl::UnavailableError(NobodyEligible(fleet, pool_.registry()));
    if (!decision) {
      return absl::UnavailableError(Concat(
          "no worker can take the request: all ", full.size(), " that are eligible have ",
          options_.max_worker_requests, " open requests (max_worker_requests)"));
    }
    decision->explanation = key.explanation;
    decision->arm = key.arm;
    NoteLoads(fleet, &*decision);
    const std::shared_ptr<Worker>& worker = fleet.members()[decision->position].worker;
    const std::shared_ptr<Policy> observer = ObserverOf(key, fleet, *decision, transferred);
    std::optional<Ticket> ticket = Ticket::MakeBelow(
        most, observer, worker, *decision, ShareOf(key, *decision, transferred),
        {key.prompt_bytes, key.of_model});
    if (!ticket) {  // another thread took its last slot meanwhile
      observer->Observe(*decision, {.end = Outcome::End::kNotSent});
      continue;
    }
    worker->selections.fetch_add(1, std::memory_order_relaxed);
    return *std::move(ticket);
  }
}

// ---- the bypass of prefill

// What each eligible decode worker has of the prompt.
struct Router::Matched {
  std::vector<uint32_t> blocks;    // in the order of eligible workers
  std::vector<uint32_t> uncached;  // likewise, in tokens
};

// nullopt: not known of this request. A prompt of which a part was not read has more tokens than were counted.
std::optional<Router::Matched> Router::MatchBypass(const RoutingKey& key, const FleetView& fleet) const {
  const bool is_counted = key.has_blocks && (key.prompt_bytes != 0 || key.blocks_are_tokens);
  if (!may_bypass() || !is_counted || fleet.eligible().empty()) return std::nullopt;
  // The index plans for the prefill stage, whose view has all workers at equal positions.
  const std::shared_ptr<const FleetView> whole = pool_.fleet();
  const KvIndex::Plan* const plan = pool_.index()->PlanOf(*whole);
  if (plan == nullptr || plan->membership != fleet.membership_version()) return std::nullopt;
  thread_local BlockMatches own_matches;
  BlockMatches& matches = own_matches;
  matches.Clear();
  if (!key.blocks.empty()) pool_.index()->Peek(key, *plan, &matches);
  Matched found;
  for (const uint32_t position : fleet.eligible()) {
    const BlockMatch* const match = matches.Find(plan->known[position].slot);
    const Decision decision = KvIndex::DecisionFor(
        position, Reason::kPrefixHit, match != nullptr ? match->longest() : 0, key, fleet);
    found.blocks.push_back(static_cast<uint32_t>(decision.matched));
    found.uncached.push_back(ShareOf(key, decision, /*transferred=*/false).queued_prefill);
  }
  return found;
}

std::optional<PdBypassChoice> Router::FindBypass(const RoutingKey& key, const FleetView& given) const {
  std::optional<FleetView> unloaded;
  std::optional<FleetView> residents;
  const FleetView& fleet = WithResidents(Unloaded(given, &unloaded), &residents);
  const std::optional<Matched> matched = MatchBypass(key, fleet);
  if (!matched) return std::nullopt;
  DecisionRandom random(bypass_random_, /*dry_run=*/true);
  return ChooseBypass(options_.bypass, fleet, matched->uncached, *random);
}

std::optional<Router::Bypass> Router::SelectBypass(const RoutingKey& key, const FleetView& given) {
  if (!may_bypass()) return std::nullopt;
  ExpireTickets();
  std::optional<FleetView> unloaded;
  std::optional<FleetView> residents;
  const FleetView& fleet = WithResidents(Unloaded(given, &unloaded), &residents);
  const std::optional<Matched> matched = MatchBypass(key, fleet);
  if (!matched) return std::nullopt;
  const std::optional<PdBypassChoice> choice =
      ChooseBypass(options_.bypass, fleet, matched->uncached, bypass_random_);
  if (!choice) return std::nullopt;
  const size_t i = static_cast<size_t>(
      std::ranges::lower_bound(fleet.eligible(), choice->position) - fleet.eligible().begin());
  // The policy of the stage has a memory of its own, and observes the request like one of its choice.
  const FleetView only = fleet.Only(choice->position);
  if (key.explanation != nullptr) ListCandidates(only, key.explanation.get());
  const std::optional<Decision> told = PolicyOf(Stage::kDecode)->Choose(key, only);
  if (!told) return std::nullopt;
  const Reason reason = matched->blocks[i] != 0 ? Reason::kPrefixHit : Reason::kLeastLoaded;
  Decision decision = KvIndex::DecisionFor(choice->position, reason, matched->blocks[i], key, fleet);
  for (size_t j = 0; j < matched->blocks.size(); ++j)
    KvIndex::ConsiderBest(fleet.eligible()[j], matched->blocks[j], key, &decision);
  NoteLoads(fleet, &decision);
  if (key.explanation != nullptr) {
    ListCandidates(fleet, key.explanation.get());
    for (size_t j = 0; j < matched->blocks.size(); ++j)
      key.explanation->candidates[j].matched = matched->blocks[j];
    decision.explanation = key.explanation;
  }
  const std::shared_ptr<Policy> observer = LearningOf(key, *told, decision.matched);
  const int64_t most = options_.max_worker_requests != 0 ? int64_t{options_.max_worker_requests} : INT64_MAX;
  const std::shared_ptr<Worker>& worker = fleet.members()[choice->position].worker;
  std::optional<Ticket> ticket = Ticket::MakeBelow(
      most, observer, worker, decision, ShareOf(key, decision, /*transferred=*/false),
      {key.prompt_bytes, key.of_model});
  if (!ticket) {
    observer->Observe(decision, {.end = Outcome::End::kNotSent});
    return std::nullopt;
  }
  worker->selections.fetch_add(1, std::memory_order_relaxed);
  return Bypass{
      .ticket = *std::move(ticket),
      .uncached_tokens = choice->uncached,
      .saved_tokens = key.prompt_tokens - std::min(key.prompt_tokens, choice->uncached)};
}

std::shared_ptr<Policy> Router::ObserverOf(
    const RoutingKey& key, const FleetView& fleet, const Decision& decision, bool transferred) {
  const std::shared_ptr<Policy>& policy = PolicyOf(fleet.stage());
  // A transferred prompt is learned once its blocks are there.
  if (!may_bypass() || fleet.stage() != Stage::kDecode || transferred || !key.has_blocks) return policy;
  return LearningOf(key, decision, std::nullopt);
}

// The policy of the stage and the index that the bypass reads, for one ticket. `matched`: blocks; nullopt: unknown.
std::shared_ptr<Policy> Router::LearningOf(
    const RoutingKey& key, const Decision& told, std::optional<uint64_t> matched) {
  return std::make_shared<LearnedPrompt>(
      PolicyOf(Stage::kDecode), told, shared_->index, Learn(key, told.worker, matched));
}

// Where it is not known how many blocks the worker computes, it owes no events of them.
Decision Router::Learn(const RoutingKey& key, WorkerId worker, std::optional<uint64_t> matched) {
  const uint64_t total = key.blocks.size();
  Decision learned{
      .worker = worker, .unit = MatchUnit::kBlocks, .matched = matched.value_or(total), .total = total};
  KvIndex& index = *shared_->index;
  const std::optional<WorkerSlot> slot = index.FindSlot(worker);
  if (!slot || key.blocks.empty()) return learned;
  index.Remember(*slot, key, &learned);
  if (matched) index.Count(learned);
  return learned;
}

void Router::LearnTransferred(const RoutingKey& key, const Worker& worker) {
  if (!may_bypass() || !key.has_blocks) return;
  shared_->index->Settle(Learn(key, worker.id, std::nullopt), {});
}

bool Router::FinishSession(std::string_view session_id) {
  bool known = false;
  for (const std::string& key : keys_.session_keys().KeysOf(session_id)) {
    known |= pool_.policy().FinishSession(key);
    if (is_staged()) known |= PolicyOf(Stage::kDecode)->FinishSession(key);
  }
  return known;
}

std::optional<uint64_t> Router::SessionHash(const RequestView& request) const {
  RoutingKey key;
  if (!keys_.session_keys().FindSession(request, &key)) return std::nullopt;
  return Xxh3(key.hash_key);
}

int64_t Router::FreePlaces(const FleetView& fleet) const {
  if (const StageViews* const stages = fleet.stages())
    return std::min(FreePlaces(*stages->prefill), FreePlaces(*stages->decode));
  const auto free_at = [this](const Worker& worker) {
    return std::max<int64_t>(0, int64_t{options_.max_worker_requests} - worker.load.open_requests());
  };
  int64_t free = 0;
  bool any_admits = false;
  for (const uint32_t position : fleet.eligible()) {
    if (!fleet.worker(position).breaker.Admits()) continue;  // its probe is under way
    any_admits = true;
    free += free_at(fleet.worker(position));
  }
  if (any_admits) return free;
  for (const FleetView::Member& member : fleet.members()) {
    if (member.in_rotation()) free += free_at(*member.worker);
  }
  return free;
}

namespace {

// "; 2 workers are not chosen: …" for each reason there is; empty: all may be paired.
std::string UnpairedText(const FleetView& whole) {
  std::string text;
  for (const PairState state :
       {PairState::kNoEngineId, PairState::kEngineUnknown, PairState::kOtherEngine,
        PairState::kNotRegistered}) {
    const auto count = std::ranges::count_if(whole.members(), [state](const FleetView::Member& member) {
      return member.pair == state && member.healthy && !member.draining && !member.resting;
    });
    if (count == 0) continue;
    text += Concat(
        "; ", count, count == 1 ? " worker is" : " workers are", " not chosen: ", PairStateText(state));
  }
  return text;
}

}  // namespace

std::string NoPairMessage(const FleetView& whole) {
  const StageViews& stages = *whole.stages();
  return Concat(
      "No workers available: ", stages.prefill->eligible().size(), " prefill, ",
      stages.decode->eligible().size(), " decode", UnpairedText(whole));
}

}  // namespace vllm_router
