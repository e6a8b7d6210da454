#include "disaggregation/nixl_push_connector.h"

#include "base/text.h"
#include "disaggregation/transfer_parameters.h"

namespace vllm_router {
namespace {

class NixlPush final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "nixl_push",
        .hands_parameters = true,
        .shortens_prefill = true,
        .decode_can_prefill = true,
        .rebindable = false};
    return kTraits;
  }

  PdOrder OrderOf(const PairAttempt& attempt) const override {
    return attempt.prefill.push != nullptr ? PdOrder::kConcurrent : PdOrder::kSerial;
  }

  std::string_view Missing(const PairAttempt& attempt) const override {
    return attempt.bits ? "" : "the id of the transfer";
  }

  void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const override {
    patch->Insert(
        kTransferParameters,
        Concat("{", kNixlPrefillMembers, R"(,"transfer_id":")", XferId(*attempt.bits), R"("})"));
  }

  // A response of the same attempt is newer than what was known before.
  void EditDecode(const PairAttempt& attempt, std::optional<std::string_view> parameters, BodyPatch* patch)
      const override {
    std::optional<PushIdentity> identity;
    if (parameters) identity = ReadPushIdentity(BodyMap::Read(*parameters));
    if (!identity && attempt.prefill.push != nullptr) identity = *attempt.prefill.push;
    if (!identity) return;
    patch->Insert(kTransferParameters, PushParameters(*identity, attempt.id, XferId(*attempt.bits)));
  }

  bool IsWhole(const BodyMap& parameters) const override { return ReadPushIdentity(parameters).has_value(); }
  bool IsOfPush(const BodyMap& /*parameters*/) const override { return true; }
};

}  // namespace

std::string PushParameters(
    const PushIdentity& identity, std::string_view request_id, std::string_view transfer_id) {
  std::string object = Concat(
      "{", kDecodeMembers, R"(,"remote_engine_id":)", JsonQuoted(identity.engine_id), R"(,"remote_host":)",
      JsonQuoted(identity.host), R"(,"remote_port":)", identity.port, R"(,"tp_size":)", identity.tp_size);
  if (identity.pp_size) object += Concat(R"(,"pp_size":)", *identity.pp_size);
  object += Concat(R"(,"remote_request_id":)", JsonQuoted(request_id));
  if (!transfer_id.empty()) object += Concat(R"(,"transfer_id":)", JsonQuoted(transfer_id));
  return object + "}";
}

const KvConnector& NixlPushConnector() {
  static const NixlPush connector;
  return connector;
}

}  // namespace vllm_router
