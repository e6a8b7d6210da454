#include "disaggregation/mooncake_connector.h"

#include "base/text.h"
#include "disaggregation/transfer_parameters.h"

namespace vllm_router {
namespace {

class Mooncake final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "mooncake",
        .hands_parameters = false,
        .shortens_prefill = true,
        .ends_by_length = true,
        .decode_can_prefill = true,
        .rebindable = false,
        .names_engine = true};
    return kTraits;
  }

  PdOrder OrderOf(const PairAttempt& /*attempt*/) const override { return PdOrder::kConcurrent; }

  std::string_view Missing(const PairAttempt& attempt) const override {
    if (!attempt.bits) return "the id of the transfer";
    if (attempt.prefill.host.empty()) return "the host of the prefill worker's bootstrap server";
    if (attempt.prefill.engine_id.empty()) return "the engine id of the prefill worker's rank";
    return {};
  }

  void EditPrefill(const PairAttempt& attempt, BodyPatch* patch) const override {
    patch->Insert(
        kTransferParameters,
        Concat("{", kPrefillMembers, R"(,"transfer_id":")", XferId(*attempt.bits), R"("})"));
  }

  void EditDecode(
      const PairAttempt& attempt, std::optional<std::string_view> /*parameters*/,
      BodyPatch* patch) const override {
    const PairEnd& prefill = attempt.prefill;
    const std::string address =
        Concat("http://", HostAndPort(prefill.host, prefill.bootstrap_port.value_or(kDefaultBootstrapPort)));
    patch->Insert(
        kTransferParameters, Concat(
                                 "{", kDecodeMembers, R"(,"transfer_id":")", XferId(*attempt.bits),
                                 R"(","remote_bootstrap_addr":)", JsonQuoted(address),
                                 R"(,"remote_engine_id":)", JsonQuoted(prefill.engine_id), "}"));
  }

  bool IsWhole(const BodyMap& /*parameters*/) const override { return false; }
};

}  // namespace

const KvConnector& MooncakeConnector() {
  static const Mooncake connector;
  return connector;
}

}  // namespace vllm_router
