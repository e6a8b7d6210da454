#include "routing/router_option_table.h"

#include "base/limits.h"

namespace vllm_router {

const OptionTable<RouterOptions>& RouterOptionTable() {
  using O = RouterOptions;
  using Keys = SessionKeyOptions;
  static const auto* table = new OptionTable<O>{
      {.name = "intra_node_data_parallel_size",
       .member = Member<&O::data_parallel_size>(),
       .range = {.min = 1, .max = kMaxWorkers, .what = "the number of ranks per worker URL"}},
      {.name = "prefill_data_parallel_size",
       .member = Member<&O::prefill_data_parallel_size>(),
       .range =
           {.min = 1,
            .max = kMaxWorkers,
            .what = "the number of ranks per prefill worker URL",
            .zero = "as --intra-node-data-parallel-size"}},
      {.name = "decode_data_parallel_size",
       .member = Member<&O::decode_data_parallel_size>(),
       .range =
           {.min = 1,
            .max = kMaxWorkers,
            .what = "the number of ranks per decode worker URL",
            .zero = "as --intra-node-data-parallel-size"}},
      {.name = "pd_bypass_uncached_tokens", .member = Member<&O::bypass, &PdBypassRule::uncached_tokens>()},
      {.name = "pd_bypass_queued_tokens", .member = Member<&O::bypass, &PdBypassRule::queued_tokens>()},
      {.name = "max_prefix_length",
       .member = Member<&O::max_prefix_length>(),
       .range = {.min = 1, .max = kMaxPrefixLength, .what = "the length of a prefix in bytes"}},
      {.name = "routing_text_limit",
       .member = Member<&O::routing_text_limit>(),
       .range =
           {.min = kMinRoutingTextLimit,
            .max = kMaxRoutingTextLimit,
            .what = "the length in bytes up to which a prompt is matched"}},
      {.name = "routing_text_tools",
       .member = Word<&O::routing_text_tools>(),
       .words = {{"auto", ToolOrder::kUnknown}, {"first", ToolOrder::kFirst}, {"after", ToolOrder::kAfter}}},
      {.name = "max_worker_requests", .member = Member<&O::max_worker_requests>()},
      {.name = "receipts",
       .member = Member<&O::receipts>(),
       .range = {.max = 1'000'000, .what = "the number of receipts that are kept per thread"}},
      {.name = "ticket_lease_secs", .member = Member<&O::ticket_lease_secs>()},
      {.name = "discovery_guard", .member = Member<&O::discovery_guard>()},
      {.name = "discovery_hold_secs", .member = Member<&O::discovery_hold_secs>()},
      {.name = "tokenize",
       .member = Word<&O::tokenize>(),
       .words = {{"auto", Tokenize::kAuto}, {"never", Tokenize::kNever}, {"worker", Tokenize::kWorker}}},
      {.name = "hash_key_order",
       .member = Word<&O::session_key, &Keys::order>(),
       .words = {{"seed", Keys::Order::kSeed}, {"reference", Keys::Order::kReference}}},
      {.name = "hash_key_headers", .member = Member<&O::session_key, &Keys::headers>()},
      {.name = "session_header_aliases", .member = Member<&O::session_key, &Keys::aliases>()},
      {.name = "hash_key_fallback",
       .member = Word<&O::session_key, &Keys::fallback>(),
       .words = {{"opening", Keys::Fallback::kOpening}, {"body", Keys::Fallback::kBody}}},
      {.name = "consistent_hash_compat", .member = Member<&O::session_key, &Keys::compat>()},
  };
  return *table;
}

}  // namespace vllm_router
