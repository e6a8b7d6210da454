// KvConnector: what a pair of workers is told so that KV blocks go from the one that computes the prompt (prefill) to
// the one that generates (decode). One file per connector of the engines, <name>_connector.cc, and one line in the
// table of kv_connector.cc.
//
//   client's body ─┬─ EditPrefill ─▶ prefill worker ── its response's parameters ─┐
//                  └─ EditDecode ◀────────────────────────────────────────────────┘──▶ decode worker
//
// A connector is stateless: all that it needs of an attempt is in PairAttempt. What is not known yet, Missing() names,
// and then neither copy may be sent: with half of what they need, workers wait for each other. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "disaggregation/pair_id.h"
#include "disaggregation/pd_machine.h"
#include "disaggregation/push_identity.h"
#include "routing/body_patch.h"
#include "worker/moriio_mode.h"
#include "worker/pair_state.h"

namespace vllm_router {

inline constexpr uint16_t kDefaultBootstrapPort = 8998;  // of Mooncake and SGLang

// One worker of a pair, and what connectors need of it.
struct PairEnd {
  std::string_view host;
  uint16_t port = 0;
  std::optional<uint32_t> rank = {};            // of its data-parallel engines
  std::optional<uint16_t> bootstrap_port = {};  // where peers learn of it
  std::string_view engine_id = {};     // of the rank, as the bootstrap server says (mooncake_engines.h)
  const PushIdentity* push = nullptr;  // of the rank, as an earlier response said
  // As the worker registered (disaggregation/pd_registration.h), or as flags say.
  std::string_view zmq_address = {};
  std::optional<uint32_t> tp_size = {};
  std::optional<uint32_t> dp_size = {};
};

struct PairAttempt {
  std::string_view id;  // X-Request-Id of both legs, of NewPairId()
  PairEnd prefill;
  PairEnd decode;
  std::optional<PairBits> bits = {};  // new for each attempt: they become the transfer's id
  std::optional<MoriioMode> moriio_mode = {};
  // SGLang: one for each prompt of the request (PdPlan::listed_prompts), of DrawRoom().
  std::span<const uint64_t> rooms = {};
  std::optional<size_t> listed_prompts = {};
  bool rank_fields = false;  // --pd-sglang-rank-fields
};

class KvConnector {
 public:
  struct Traits {
    std::string_view name;  // of --kv-connector
    // The prefill worker's response has parameters, without which decode computes the prompt itself.
    bool hands_parameters;
    // Prefill would generate, so its copy is limited to one token.
    bool shortens_prefill;
    // Blocks are sent only if prefill ends by that limit, so nothing else may stop it.
    bool ends_by_length = false;
    // The decode worker can serve a request alone: without parameters it computes the prompt itself. If not, a request
    // that two workers cannot share is rejected, and no worker gets one that the other does not know of.
    bool decode_can_prefill;
    // Without those of prefill's response, in serial order, decode would generate from blocks that nobody has filled.
    bool needs_parameters = false;
    // Both workers meet in a room for each prompt.
    bool meets_in_rooms = false;
    // What a prefill worker computes without a decode worker ends it, too.
    bool prefill_needs_pair = false;
    // Both workers tell the router their ZMQ addresses (worker/stage.h, KvPeer); one that has not cannot be in a pair.
    bool registers = false;
    // And the mode of their transfers, the same for all.
    bool registers_mode = false;
    // What clients are told while none has: "no … has registered". Empty: what any fleet without workers says.
    std::string_view awaited = {};
    // What a prefill worker handed over names no decode worker, so another one may be given it.
    bool rebindable;
    PairIdForm id_form = PairIdForm::kEither;
    // Decode is told the id of prefill's engine, which its bootstrap server knows.
    bool names_engine = false;
  };

  virtual ~KvConnector() = default;
  virtual const Traits& traits() const = 0;
  // Of an attempt, since it may depend on what is known of the prefill worker.
  virtual PdOrder OrderOf(const PairAttempt& attempt) const = 0;
  // What has to be known before this pair can be told anything, for messages; empty if nothing is missing.
  virtual std::string_view Missing(const PairAttempt& attempt) const;

  // Both REQUIRE that nothing is missing.
  virtual void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const = 0;
  // `parameters`: the raw object of the prefill worker's response, of which IsWhole() was true, or nothing. Its bytes
  // outlive the patch.
  virtual void EditDecode(
      const PairAttempt& attempt, std::optional<std::string_view> parameters, BodyPatch* patch) const = 0;
  // True if the decode worker can use this object of the prefill worker's response. Half an object can end its
  // process.
  virtual bool IsWhole(const BodyMap& parameters) const = 0;
  // True if ReadPushIdentity() of this object holds for later attempts. REQUIRES: it is whole.
  virtual bool IsOfPush(const BodyMap& parameters) const;

 protected:
  KvConnector() = default;
  KvConnector(const KvConnector&) = default;
  KvConnector& operator=(const KvConnector&) = default;
};

// nullptr for a name that is not in the table.
const KvConnector* FindKvConnector(std::string_view name);
std::span<const KvConnector* const> KvConnectors();

// --kv-connector auto: the connector of the engine that all workers are of.
inline constexpr std::string_view kAutoConnector = "auto";
// Of a fleet whose workers are of `engine`. nullptr: under auto, none is known yet.
const KvConnector* ConnectorOf(std::string_view name, EngineKind engine);

// The worker in a pair's id: the ZMQ address that it registered, else host:port.
std::string PairAddress(const PairEnd& end);

// X-Request-Id for both legs of an attempt. `plain`: --pd-request-id plain, for connectors that read no addresses.
std::string NewPairId(
    const KvConnector& connector, const PairEnd& prefill, const PairEnd& decode, std::string_view client_id,
    const PairBits& bits, bool plain);

// True if the id names the ZMQ addresses that both workers registered.
bool IdNamesZmqAddresses(const PairAttempt& attempt);

}  // namespace vllm_router
