#include "disaggregation/p2p_nccl_connector.h"

#include "base/text.h"
#include "disaggregation/transfer_parameters.h"

namespace vllm_router {
namespace {

class P2pNccl final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "p2p_nccl",
        .hands_parameters = true,
        .shortens_prefill = true,
        .decode_can_prefill = false,
        .prefill_needs_pair = true,
        .registers = true,
        .rebindable = false,
        .id_form = PairIdForm::kAddresses};
    return kTraits;
  }

  PdOrder OrderOf(const PairAttempt& /*attempt*/) const override { return PdOrder::kSerial; }

  std::string_view Missing(const PairAttempt& attempt) const override {
    if (attempt.prefill.zmq_address.empty() || attempt.decode.zmq_address.empty())
      return "the ZMQ addresses of both workers, which they register";
    return IdNamesZmqAddresses(attempt) ? "" : "a request id with the ZMQ addresses of both workers";
  }

  void EditPrefill(const PairAttempt& /*attempt*/, BodyPatch* patch) const override {
    patch->Insert(kTransferParameters, Concat("{", kNixlPrefillMembers, "}"));
  }

  void EditDecode(
      const PairAttempt& /*attempt*/, std::optional<std::string_view> parameters,
      BodyPatch* patch) const override {
    if (parameters) patch->InsertBytes(kTransferParameters, *parameters);
  }

  // Decode reads nothing of it.
  bool IsWhole(const BodyMap& parameters) const override { return parameters.ok(); }
};

}  // namespace

const KvConnector& P2pNcclConnector() {
  static const P2pNccl connector;
  return connector;
}

}  // namespace vllm_router
