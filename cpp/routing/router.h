// Router: the whole decision as a library call. Fleet, policy and load in one object; no sockets, no Python.
//
//   RequestView -> MakeKey -> RoutingKey -> Select -> Ticket
//                                ^            ^
//                     what Needs() names    a FleetView: one snapshot, or a smaller one for a retry
//
// A fleet may have two stages, prefill and decode workers (RouterOptions::disaggregated): each is chosen from its own
// view, FleetView::stages(), by its own policy.
//
//   auto router = Router::Create({.policy = {.policy = "least_load"}, .worker_urls = {"http://a:8000"}});
//   auto fleet = (*router)->fleet();
//   StatusOr<Ticket> ticket = (*router)->Select((*router)->MakeKey(request), *fleet);
//
// Thread-safe throughout: selection never waits for a change of the fleet.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "policy/policy_options.h"
#include "policy/pool.h"
#include "routing/key_builder.h"
#include "routing/model_lengths.h"
#include "routing/paged_prompts.h"
#include "routing/pd_bypass.h"
#include "routing/prefix_digest.h"
#include "routing/prompt_reading.h"
#include "routing/request_view.h"
#include "routing/routing_text.h"
#include "routing/session_key.h"
#include "routing/ticket.h"
#include "routing/ticket_leases.h"
#include "routing/tool_order.h"
#include "worker/worker_declaration.h"

namespace vllm_router {

struct RouterOptions {
  PolicyOptions policy;
  Tokenize tokenize = Tokenize::kAuto;
  SessionKeyOptions session_key;
  std::vector<std::string> worker_urls;
  size_t max_prefix_length =
      kDefaultPrefixLength;  // bytes of the prompt that a prefix digest is of, 1..kMaxPrefixLength
  size_t routing_text_limit =
      kDefaultRoutingTextLimit;  // bytes of a prompt that are matched, kMin.. to kMaxRoutingTextLimit
  ToolOrder routing_text_tools = ToolOrder::kUnknown;  // of all models; kUnknown: tool_orders() learns it
  uint32_t max_worker_requests = 0;                    // maximum open requests per worker; 0: no limit
  uint32_t receipts = 8192;  // that are kept, of each thread of a server (receipts/receipt_log.h); 0: none
  double ticket_lease_secs = 0;     // a ticket that is not renewed for so long ends; 0: never
  uint32_t data_parallel_size = 1;  // > 1: every URL without @rank becomes URL@0 .. URL@n-1

  // Two stages. `policy` is then that of prefill workers, and worker_urls are ignored.
  struct StageUrl {
    std::string url;
    std::optional<uint16_t> bootstrap_port = {};
  };
  bool disaggregated = false;
  std::vector<StageUrl> prefill_urls;
  std::vector<std::string> decode_urls;
  // Without a name: InheritedDecodePolicy(policy). Its block_size is always that of `policy`.
  PolicyOptions decode_policy{.policy = ""};
  uint32_t prefill_data_parallel_size = 0;  // of the stage; 0: data_parallel_size
  uint32_t decode_data_parallel_size = 0;
  // Which requests a decode worker serves alone (routing/pd_bypass.h); uncached_tokens 0: none.
  PdBypassRule bypass;

  // How lists of workers are taken (worker/declared_fleet.h).
  double discovery_guard = 0.5;  // share of a source's workers that a list may leave out without doubt
  double discovery_hold_secs = 60;
};

// The policy of decode workers where none is set: `policy`, but least_load by tokens if that matches prompts, since a
// decode worker gets a prompt's blocks from elsewhere.
StatusOr<PolicyOptions> InheritedDecodePolicy(const PolicyOptions& policy);

class Router {
 public:
  static StatusOr<std::shared_ptr<Router>> Create(const RouterOptions& options);
  // With a given policy; `options.policy` is read for its block size only.
  static StatusOr<std::shared_ptr<Router>> CreateWith(const RouterOptions& options, PolicyParts policy);
  ~Router();

  const Policy& policy() const { return pool_.policy(); }
  // The one that chooses in views of that stage; in a fleet without stages there is one for all.
  const Policy& policy_of(Stage stage) const { return *PolicyOf(stage); }
  bool is_staged() const { return pool_.is_staged(); }
  uint32_t ranks_of(Stage stage) const;  // that a URL without @rank stands for
  // The workers, and what is known of their caches.
  Pool& pool() { return pool_; }
  const Pool& pool() const { return pool_; }
  const RouterOptions& options() const { return options_; }

  // The fleet. Here and below a worker whose URL names no rank stands for all ranks of its engine:
  // WorkerDeclaration::ranks of them, or with 0 ranks_of() its stage. All are added or none.
  Status AddWorker(const WorkerDeclaration& worker);
  Status AddWorker(std::string_view url);  // with the defaults
  // The result that AddWorker would have.
  Status MayAddWorker(const WorkerDeclaration& worker);
  // The whole list of a source of workers.
  StatusOr<Difference> Reconcile(
      std::string_view source, std::span<const WorkerDeclaration> list, bool complete,
      std::span<const std::string> deleted);
  // The result that Reconcile would have; changes nothing.
  StatusOr<Difference> WouldReconcile(
      std::string_view source, std::span<const WorkerDeclaration> list, bool complete);
  Status RemoveWorker(std::string_view url) { return pool_.registry().Remove(url); }
  Status DrainWorker(std::string_view url, bool draining = true) {
    return pool_.registry().SetDraining(url, draining);
  }
  Status SetHealthy(std::string_view url, bool healthy) { return pool_.registry().SetHealthy(url, healthy); }
  // From now on all workers must have addresses, since the server connects to them.
  Status RequireAddresses() { return pool_.registry().RequireAddresses(); }
  void RefreshFleet() { pool_.registry().Refresh(); }  // a breaker has changed, or a slow start has advanced
  // What the cache of `url`, or of each of its ranks, has: tokens of a block, and the number of blocks (0: unknown).
  Status SetCacheBlocks(std::string_view url, uint32_t block_tokens, uint64_t blocks);
  const Snapshot<FleetView>& fleet_snapshot() const { return pool_.fleet_snapshot(); }
  std::shared_ptr<const FleetView> fleet() const { return pool_.fleet(); }

  // For prompts of text, for policies that match blocks under Tokenize::kWorker; else null.
  TokenCache* token_cache() const { return keys_.token_cache(); }
  // Text prompts are turned into token ids.
  bool tokenizes() const { return keys_.tokenizes(); }
  // Only prompts of token ids can match what workers report or share, so the ids are worth waiting for.
  bool compares_ids() const { return keys_.compares_ids(); }
  // Prompts with pages in a pool that workers share; those of bodies have them in their keys.
  PagedPrompts& paged_prompts() { return paged_; }
  // Where each model's chat template prints tools, for whoever asks workers.
  ToolOrders& tool_orders() { return tool_orders_; }
  // Stores the ids that `worker` returned for `text`: they are cached, and the worker holds their
  // blocks. REQUIRES: token_cache().
  void LearnTokens(const RoutingKey::UntokenizedPrompt& text, WorkerId worker, PromptIds ids) {
    pool_.RecordBlocks(worker, keys_.BlocksOf(text, ids));
    token_cache()->Store(text.name, std::move(ids));
  }

  // The parts that MakeKey reads; this router uses nothing else of a request.
  KeyParts needs() const { return keys_.needs(); }

  // True when the policy cannot decide on these headers alone, so the body must be read first.
  bool NeedsBody(std::span<const HeaderField> headers) const { return keys_.NeedsBody(headers); }

  // Only the parts that the policy needs. The second form reuses the memory of the key.
  RoutingKey MakeKey(const RequestView& request) const {
    RoutingKey key;
    keys_.Build(request, &key);
    return key;
  }
  void MakeKey(const RequestView& request, RoutingKey* key) const { keys_.Build(request, key); }

  // The known properties of the prompt, for a traffic log. `key`: the result of MakeKey for the same
  // request, so that blocks and session are not computed again; or an empty one. No decision depends on
  // it.
  void ReadPrompt(const RequestView& request, const RoutingKey& key, PromptReading* reading) const {
    keys_.ReadPrompt(request, key, reading);
  }

  // Unavailable when no worker in `fleet` is eligible, or all eligible ones have max_worker_requests
  // open; the message tells how many there are and why not. The policy is that of fleet.stage().
  // `transferred`: the worker gets the prompt's blocks from another one, so that none of it is to be computed.
  StatusOr<Ticket> Select(const RoutingKey& key, const FleetView& fleet, bool transferred = false);
  // A decode worker that serves the request alone, since it has to compute little of the prompt (routing/pd_bypass.h).
  // nullopt: two stages, also if that worker has max_worker_requests. `fleet`: of the decode stage.
  struct Bypass {
    Ticket ticket;
    uint32_t uncached_tokens = 0;
    uint32_t saved_tokens = 0;  // of the prompt, that are neither computed nor fetched
  };
  std::optional<Bypass> SelectBypass(const RoutingKey& key, const FleetView& fleet);
  // The same as a dry run: the worker's position and the tokens that it would have to compute.
  std::optional<PdBypassChoice> FindBypass(const RoutingKey& key, const FleetView& fleet) const;
  bool may_bypass() const { return is_staged() && options_.bypass.uncached_tokens != 0; }
  // The decode worker has fetched the prompt's blocks. No effect unless may_bypass().
  void LearnTransferred(const RoutingKey& key, const Worker& worker);
  // The member at `position`, in any state, without an alternative. The policy observes it like any
  // choice. `bounded`: Unavailable when it has max_worker_requests.
  StatusOr<Ticket> SelectPinned(
      const RoutingKey& key, const FleetView& fleet, uint32_t position, bool bounded,
      bool transferred = false);
  // Forgets the worker of a session, under any header or member that may carry it. True: a policy knew
  // it.
  bool FinishSession(std::string_view session_id);
  // A hash of the session that the request names, if it names one.
  std::optional<uint64_t> SessionHash(const RequestView& request) const;
  // The decision that Select() would make, then the one with that worker excluded, and so on: at most
  // `count` decisions, the first of them with key.explanation. Reserves, learns and counts nothing.
  // REQUIRES: key.dry_run.
  std::vector<Decision> Rank(const RoutingKey& key, const FleetView& fleet, size_t count) const;
  // Everything that may be derived from a request for a decision, whatever the policy needs of it.
  RequestSummary Summarize(const RequestView& request) const { return keys_.Summarize(request); }
  // Leases of tickets whose holders set one; Select() and readers of loads end those that are due.
  const std::shared_ptr<TicketLeases>& leases() const { return leases_; }
  void ExpireTickets() const;
  // Free request slots under max_worker_requests of the workers that may be chosen now: the eligible
  // ones or, if no circuit breaker admits a request, all healthy ones. Of two stages those of the one that has
  // fewer, since a request needs both. REQUIRES: max_worker_requests is not 0.
  int64_t FreePlaces(const FleetView& fleet) const;

 private:
  // One for each rank.
  std::vector<WorkerDeclaration> EachRank(std::span<const WorkerDeclaration> list) const;
  Status AddStatic();
  Router(const RouterOptions& options, PolicyParts policy, PolicyParts decode);

  // State that tickets may use after the router is gone.
  struct Shared {
    Shared(std::shared_ptr<Policy> policy, std::shared_ptr<Policy> decode, std::shared_ptr<KvIndex> index)
        : policy(std::move(policy)), decode(std::move(decode)), index(std::move(index)) {}
    const std::shared_ptr<Policy> policy;
    const std::shared_ptr<Policy> decode;  // null in a fleet without stages
    const std::shared_ptr<KvIndex> index;  // that prefill's policy reads, or else the bypass alone
    ModelLengths lengths;
  };

  // The eligible workers that have max_worker_requests open.
  std::vector<uint32_t> FullOf(const FleetView& fleet) const;
  LoadShare ShareOf(const RoutingKey& key, const Decision& decision, bool transferred) const;
  // The policy of a ticket: it learns of decode workers' caches where these are matched.
  std::shared_ptr<Policy> ObserverOf(
      const RoutingKey& key, const FleetView& fleet, const Decision& decision, bool transferred);
  std::shared_ptr<Policy> LearningOf(
      const RoutingKey& key, const Decision& told, std::optional<uint64_t> matched);
  Decision Learn(const RoutingKey& key, WorkerId worker, std::optional<uint64_t> matched);
  struct Matched;
  std::optional<Matched> MatchBypass(const RoutingKey& key, const FleetView& fleet) const;
  const std::shared_ptr<Policy>& PolicyOf(Stage stage) const {
    return pool_.policy_of(is_staged() ? stage : Stage::kAll);
  }
  std::optional<Decision> Choose(const RoutingKey& key, const FleetView& given) const;
  std::optional<Decision> ChooseLast(const RoutingKey& key, Policy& policy, const FleetView& fleet) const;
  StatusOr<Ticket> SelectAny(const RoutingKey& key, const FleetView& fleet, bool transferred);
  StatusOr<Ticket> SelectBelow(const RoutingKey& key, const FleetView& fleet, bool transferred);

  const RouterOptions options_;
  const std::shared_ptr<Shared> shared_;
  Pool pool_;  // its policies keep the shared state alive
  PagedPrompts paged_;
  ToolOrders tool_orders_;
  const KeyBuilder keys_;
  mutable Random bypass_random_;
  const std::shared_ptr<TicketLeases> leases_ =
      std::make_shared<TicketLeases>();  // its tickets may outlive the router
};

// Why a request that needs a worker of each stage got none: the eligible ones. REQUIRES: whole.stages().
std::string NoPairMessage(const FleetView& whole);

}  // namespace vllm_router
