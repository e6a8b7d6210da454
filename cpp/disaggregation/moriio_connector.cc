#include "disaggregation/moriio_connector.h"

#include "base/text.h"
#include "disaggregation/transfer_parameters.h"

namespace vllm_router {
namespace {

constexpr std::string_view kNoBlocks = R"("remote_engine_id":null,"remote_block_ids":null)";

bool Reads(const PairAttempt& attempt) { return attempt.moriio_mode == MoriioMode::kRead; }

class Moriio final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "moriio",
        .hands_parameters = true,
        .shortens_prefill = true,
        .ends_by_length = true,
        .decode_can_prefill = false,
        .needs_parameters = true,
        .prefill_needs_pair = true,
        .registers = true,
        .registers_mode = true,
        .awaited = "MoRI-IO worker",
        .rebindable = false,
        .id_form = PairIdForm::kAddresses};
    return kTraits;
  }

  PdOrder OrderOf(const PairAttempt& attempt) const override {
    return attempt.moriio_mode == MoriioMode::kWrite ? PdOrder::kConcurrent : PdOrder::kSerial;
  }

  std::string_view Missing(const PairAttempt& attempt) const override {
    if (!attempt.moriio_mode) return "the MoRI-IO mode, READ or WRITE, which workers register";
    if (!attempt.bits) return "the id of the transfer";
    if (!attempt.prefill.dp_size || !attempt.prefill.tp_size || !attempt.decode.dp_size ||
        !attempt.decode.tp_size)
      return "the parallel sizes of both workers, which they register";
    if (attempt.prefill.zmq_address.empty() || attempt.decode.zmq_address.empty())
      return "the ZMQ addresses of both workers, which they register";
    if (!IdNamesZmqAddresses(attempt)) return "a request id with the ZMQ addresses of both workers";
    return {};
  }

  void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const override {
    const PairEnd& decode = attempt.decode;
    std::string object = Concat(
        "{", kPrefillMembers, ",", kNoBlocks, R"(,"transfer_id":")", TxId(*attempt.bits),
        R"(","remote_dp_size":)", *decode.dp_size);
    if (!Reads(attempt)) {
      object += Concat(R"(,"remote_tp_size":)", *decode.tp_size);
      if (decode.rank) object += Concat(R"(,"remote_dp_rank":)", *decode.rank);
    }
    patch->Insert(kTransferParameters, object + "}");
  }

  void EditDecode(const PairAttempt& attempt, std::optional<std::string_view> parameters, BodyPatch* patch)
      const override {
    const PairEnd& prefill = attempt.prefill;
    if (Reads(attempt)) {
      if (!parameters) return;
      const BodyMap object = BodyMap::Read(*parameters);
      BodyPatch more;
      more.Insert("remote_dp_size", Concat(*prefill.dp_size));
      more.Insert("remote_tp_size", Concat(*prefill.tp_size));
      if (prefill.rank) more.Insert("remote_dp_rank", Concat(*prefill.rank));
      if (!HasText(object, "transfer_id"))
        more.Insert("transfer_id", Concat("\"", TxId(*attempt.bits), "\""));
      patch->InsertPatched(kTransferParameters, object, more);
      return;
    }
    std::string object = Concat(
        "{", kDecodeMembers, ",", kNoBlocks, R"(,"transfer_id":")", TxId(*attempt.bits),
        R"(","remote_dp_size":)", *prefill.dp_size, R"(,"remote_tp_size":)", *prefill.tp_size);
    if (prefill.rank) object += Concat(R"(,"remote_dp_rank":)", *prefill.rank);
    patch->Insert(kTransferParameters, object + "}");
  }

  // Of READ: what names the blocks.
  bool IsWhole(const BodyMap& parameters) const override {
    return parameters.ok() && HasText(parameters, "remote_engine_id") &&
           HasBlocks(parameters, "remote_block_ids");
  }
};

}  // namespace

const KvConnector& MoriioConnector() {
  static const Moriio connector;
  return connector;
}

}  // namespace vllm_router
