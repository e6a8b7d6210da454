#include "disaggregation/shared_store_connector.h"

namespace vllm_router {
namespace {

class SharedStore final : public KvConnector {
 public:
  const Traits& traits() const override {
    static constexpr Traits kTraits{
        .name = "shared_store",
        .hands_parameters = false,
        .shortens_prefill = true,
        .decode_can_prefill = true,
        .rebindable = true};
    return kTraits;
  }

  PdOrder OrderOf(const PairAttempt& /*attempt*/) const override { return PdOrder::kSerial; }

  void EditPrefill(const PairAttempt& /*attempt*/, BodyPatch* /*patch*/) const override {}
  void EditDecode(
      const PairAttempt& /*attempt*/, std::optional<std::string_view> /*parameters*/,
      BodyPatch* /*patch*/) const override {}
  bool IsWhole(const BodyMap& /*parameters*/) const override { return false; }
};

}  // namespace

const KvConnector& SharedStoreConnector() {
  static const SharedStore connector;
  return connector;
}

}  // namespace vllm_router
