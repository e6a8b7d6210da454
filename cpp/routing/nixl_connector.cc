#include "routing/nixl_connector.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace vllm_router {
namespace {

constexpr std::string_view kParameters = "kv_transfer_params";
// Exactly these six, as the reference router sends them.
constexpr std::string_view kPrefillParameters =
    R"({"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,"remote_block_ids":null,)"
    R"("remote_host":null,"remote_port":null})";

struct Needed {
  std::string_view name;
  BodyMap::Type type;
};
constexpr std::array kNeeded = {
    Needed{"remote_engine_id", BodyMap::Type::kString}, Needed{"remote_request_id", BodyMap::Type::kString},
    Needed{"remote_host", BodyMap::Type::kString},      Needed{"remote_port", BodyMap::Type::kNumber},
    Needed{"remote_block_ids", BodyMap::Type::kArray},
};

// A list of lists of numbers, at least one number.
bool IsBlockList(std::string_view value) {
  return value.find_first_of("0123456789") != std::string_view::npos &&
         value.find_first_not_of("0123456789[], \t\r\n") == std::string_view::npos;
}

bool IsPort(std::string_view value) {
  uint32_t port = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), port);
  return error == std::errc() && end == value.data() + value.size() && port > 0 && port <= 65'535;
}

bool IsUsable(const BodyMap::Member& member) {
  if (member.type == BodyMap::Type::kString) return member.value != R"("")";
  return member.type == BodyMap::Type::kArray ? IsBlockList(member.value) : IsPort(member.value);
}

bool HasOnce(const BodyMap& parameters, const Needed& needed) {
  const BodyMap::Member* const found = parameters.Find(needed.name);
  if (found == nullptr || found->type != needed.type || !IsUsable(*found)) return false;
  return parameters.Count(needed.name) == 1;
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

  PdOrder OrderOf(const PairAttempt& /*attempt*/) const override { return PdOrder::kSerial; }

  void EditPrefill(const PairAttempt& /*attempt*/, BodyPatch* patch) const override {
    patch->Insert(kParameters, kPrefillParameters);
  }

  void EditDecode(
      const PairAttempt& /*attempt*/, std::optional<std::string_view> parameters,
      BodyPatch* patch) const override {
    if (parameters) patch->InsertBytes(kParameters, *parameters);
  }

  bool IsWhole(const BodyMap& parameters) const override {
    return parameters.ok() && std::ranges::all_of(kNeeded, [&parameters](const Needed& needed) {
             return HasOnce(parameters, needed);
           });
  }
};

}  // namespace

const KvConnector& NixlConnector() {
  static const Nixl connector;
  return connector;
}

}  // namespace vllm_router
