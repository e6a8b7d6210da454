#include "disaggregation/nixl_connector.h"

#include "base/text.h"
#include "disaggregation/nixl_push_connector.h"
#include "disaggregation/transfer_parameters.h"

namespace vllm_router {
namespace {

bool NamesBlocks(const BodyMap& parameters) {
  return parameters.ok() && HasText(parameters, "remote_engine_id") &&
         HasText(parameters, "remote_request_id") && HasText(parameters, "remote_host") &&
         HasPort(parameters, "remote_port") && HasBlocks(parameters, "remote_block_ids");
}

class Nixl final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "nixl",
        .hands_parameters = true,
        .shortens_prefill = true,
        .decode_can_prefill = true,
        .rebindable = true};
    return kTraits;
  }

  PdOrder OrderOf(const PairAttempt& attempt) const override {
    return Pushes(attempt) ? NixlPushConnector().OrderOf(attempt) : PdOrder::kSerial;
  }

  std::string_view Missing(const PairAttempt& attempt) const override {
    return Pushes(attempt) ? NixlPushConnector().Missing(attempt) : std::string_view();
  }

  void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const override {
    if (Pushes(attempt)) return NixlPushConnector().EditPrefill(attempt, patch);
    patch->Insert(kTransferParameters, Concat("{", kNixlPrefillMembers, "}"));
  }

  void EditDecode(const PairAttempt& attempt, std::optional<std::string_view> parameters, BodyPatch* patch)
      const override {
    if (Pushes(attempt)) return NixlPushConnector().EditDecode(attempt, parameters, patch);
    if (!parameters) return;
    const BodyMap object = BodyMap::Read(*parameters);
    if (IsOfPush(object)) {
      // Its prefill worker was told no id of the transfer, so they pair by the request's.
      patch->Insert(kTransferParameters, PushParameters(*ReadPushIdentity(object), attempt.id, {}));
    } else {
      patch->InsertBytes(kTransferParameters, *parameters);
    }
  }

  bool IsWhole(const BodyMap& parameters) const override {
    return SaysPush(parameters) ? ReadPushIdentity(parameters).has_value() : NamesBlocks(parameters);
  }
  bool IsOfPush(const BodyMap& parameters) const override { return SaysPush(parameters); }

 private:
  static bool Pushes(const PairAttempt& attempt) { return attempt.prefill.push != nullptr; }
};

}  // namespace

const KvConnector& NixlConnector() {
  static const Nixl connector;
  return connector;
}

}  // namespace vllm_router
