// PdSettings: what an operator sets of requests that two workers serve, one computing the prompt's KV blocks (prefill),
// the other generating (decode). Part of Settings, so a request keeps those that it began with. Names, defaults and
// checks are those of python/vllm_router/settings/table.py. Immutable once published, so any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "disaggregation/pd_machine.h"

namespace vllm_router {

class FleetView;

// What becomes of blocks at a prefill worker that no decode worker will fetch.
enum class PdOrphan : uint8_t {
  kRefuse,  // a decode worker is sent their parameters in a request that it rejects, and tells prefill to free them
  kCollect,  // a decode worker fetches them and generates one token
  kExpire,   // nothing: the engine's lease ends
};
enum class PdOnPrefillLoss : uint8_t { kUnavailable, kLocal };  // if no prefill worker is chosen or reached
// Of responses of decode: whose count of the prompt's tokens; whether prefill's log probabilities of the prompt are in.
enum class PdUsage : uint8_t { kDecode, kMerge };
enum class PdLogprobs : uint8_t { kMerge, kDecode };
// Where members of the client's that steer transfers are removed.
enum class PdStrip : uint8_t { kAuto, kAlways, kNever };  // auto: in front of workers with stages
enum class PdRequestId : uint8_t { kAddresses, kPlain };  // of both legs (disaggregation/pair_id.h)

struct PdSettings {
  std::string kv_connector =
      "nixl";              // a name in the table of disaggregation/kv_connector.h; FixedOptions::kv_connector
  bool discovers = false;  // workers register; FixedOptions::vllm_discovery_address is set
  uint16_t bootstrap_port = 8998;        // of prefill workers that were declared without one
  int64_t transfer_timeout_ms = 30'000;  // from decode's request to its first byte
  int64_t prefill_timeout_ms = 0;  // from prefill's request to the end of its response; 0: request_timeout_ms
  int64_t handoff_limit_ms = 10'000;  // age of prefill's blocks at which no decode worker is sent for them
  int64_t grace_ms = 500;             // for legs that are of no use any more, before they are closed
  int64_t drain_ms = 60'000;          // for a prefill that runs on without a client
  PdOrphan orphan = PdOrphan::kRefuse;
  uint32_t orphan_max = 64;  // requests for orphaned blocks that are under way at once; 0: none
  PdCancelPrefill cancel_prefill = PdCancelPrefill::kAuto;
  PdOnPrefillLoss on_prefill_loss = PdOnPrefillLoss::kUnavailable;
  PdRequestId request_id = PdRequestId::kAddresses;
  std::vector<std::string> extra_routes;          // paths that are served in two stages as well
  std::vector<std::string> pass_paths;            // unknown ones that one worker serves
  uint64_t prefill_response_bytes = 64ull << 20;  // maximum size of prefill's response
  PdUsage usage = PdUsage::kDecode;
  PdLogprobs logprobs = PdLogprobs::kMerge;
  bool sglang_rank_fields = false;  // workers of SGLang get data-parallel ranks as members, too
  PdStrip strip_client_params = PdStrip::kAuto;
};

// Why a request finds no two workers. REQUIRES: the fleet has stages.
std::string NoPairMessage(const PdSettings& settings, const FleetView& whole);
// The same for health checks of the router, which say that it waits for workers that register.
std::string AwaitedPairMessage(const PdSettings& settings, const FleetView& whole);

}  // namespace vllm_router
