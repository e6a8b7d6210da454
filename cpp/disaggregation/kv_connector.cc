#include "disaggregation/kv_connector.h"

#include <algorithm>
#include <array>

#include "disaggregation/mooncake_connector.h"
#include "disaggregation/moriio_connector.h"
#include "disaggregation/nixl_connector.h"
#include "disaggregation/nixl_push_connector.h"
#include "disaggregation/p2p_nccl_connector.h"
#include "disaggregation/sglang_connector.h"
#include "disaggregation/shared_store_connector.h"

namespace vllm_router {

std::string_view KvConnector::Missing(const PairAttempt& /*attempt*/) const { return {}; }

bool KvConnector::IsOfPush(const BodyMap& /*parameters*/) const { return false; }

std::span<const KvConnector* const> KvConnectors() {
  static const std::array kConnectors = {
      &NixlConnector(),    &NixlPushConnector(), &MooncakeConnector(),    &MoriioConnector(),
      &P2pNcclConnector(), &SglangConnector(),   &SharedStoreConnector(),
  };
  return kConnectors;
}

const KvConnector* FindKvConnector(std::string_view name) {
  const std::span<const KvConnector* const> all = KvConnectors();
  const auto found = std::ranges::find(all, name, [](const KvConnector* one) { return one->traits().name; });
  return found == all.end() ? nullptr : *found;
}

const KvConnector* ConnectorOf(std::string_view name, EngineKind engine) {
  if (name != kAutoConnector) return FindKvConnector(name);
  switch (engine) {
    case EngineKind::kVllm:
      return &NixlConnector();
    case EngineKind::kSglang:
      return &SglangConnector();
    case EngineKind::kUnknown:
      break;
  }
  return nullptr;
}

std::string PairAddress(const PairEnd& end) {
  return end.zmq_address.empty() ? HostAndPort(end.host, end.port) : std::string(end.zmq_address);
}

std::string NewPairId(
    const KvConnector& connector, const PairEnd& prefill, const PairEnd& decode, std::string_view client_id,
    const PairBits& bits, bool plain) {
  const PairIdForm form = connector.traits().id_form;
  if (form == PairIdForm::kPlain || (form == PairIdForm::kEither && plain))
    return PlainPairId(client_id, static_cast<uint32_t>(bits.low));
  return PairId(PairAddress(prefill), PairAddress(decode), bits.high, bits.low);
}

bool IdNamesZmqAddresses(const PairAttempt& attempt) {
  const std::string_view prefill = attempt.prefill.zmq_address;
  const std::string_view decode = attempt.decode.zmq_address;
  return !prefill.empty() && !decode.empty() && attempt.id.starts_with(PairIdPrefix(prefill, decode));
}

}  // namespace vllm_router
