// KvConnector: what a pair of workers is told so that KV blocks go from the one that computes the prompt (prefill) to
// the one that generates (decode). One file per connector of the engines, <name>_connector.cc, and one line in the
// table of kv_connector.cc.
//
//   client's body ─┬─ EditPrefill ─▶ prefill worker ── its response's parameters ─┐
//                  └─ EditDecode ◀────────────────────────────────────────────────┘──▶ decode worker
//
// A connector is stateless: all that it needs of an attempt is in PairAttempt, which grows with connectors that need an
// id of the transfer or the identity and sizes of a worker. Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "routing/body_patch.h"
#include "routing/pd_machine.h"

namespace vllm_router {

// One worker of a pair.
struct PairEnd {
  std::string_view host;
  uint16_t port = 0;
  std::optional<uint32_t> rank = {};            // of its data-parallel engines
  std::optional<uint16_t> bootstrap_port = {};  // where peers learn of it
};

struct PairAttempt {
  std::string_view id;  // X-Request-Id of both legs (pair_id.h)
  PairEnd prefill;
  PairEnd decode;
};

class KvConnector {
 public:
  struct Traits {
    std::string_view name;  // of --kv-connector
    // The prefill worker's response has parameters, without which decode computes the prompt itself.
    bool hands_parameters;
    // Prefill would generate, so its copy is limited to one token.
    bool shortens_prefill;
    // The decode worker can serve a request alone.
    bool decode_can_prefill;
    // What a prefill worker handed over names no decode worker, so another one may be given it.
    bool rebindable;
  };

  virtual ~KvConnector() = default;
  virtual const Traits& traits() const = 0;
  // Of an attempt, since it may depend on what is known of the prefill worker.
  virtual PdOrder OrderOf(const PairAttempt& attempt) const = 0;

  virtual void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const = 0;
  // `parameters`: the raw object of the prefill worker's response, of which IsWhole() was true, or nothing. Its bytes
  // outlive the patch.
  virtual void EditDecode(
      const PairAttempt& attempt, std::optional<std::string_view> parameters, BodyPatch* patch) const = 0;
  // True if the decode worker can use this object of the prefill worker's response. Half an object can end its
  // process.
  virtual bool IsWhole(const BodyMap& parameters) const = 0;

 protected:
  KvConnector() = default;
  KvConnector(const KvConnector&) = default;
  KvConnector& operator=(const KvConnector&) = default;
};

// nullptr for a name that is not in the table.
const KvConnector* FindKvConnector(std::string_view name);
std::span<const KvConnector* const> KvConnectors();

}  // namespace vllm_router
