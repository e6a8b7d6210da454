#include "disaggregation/push_identity.h"

#include <string_view>
#include <utility>

#include "disaggregation/transfer_parameters.h"

namespace vllm_router {
namespace {

constexpr std::string_view kMode = "transfer_mode";

bool IsGiven(const BodyMap& parameters, std::string_view name) {
  const BodyMap::Member* const found = parameters.Find(name);
  return found != nullptr && (found->type != BodyMap::Type::kNull || parameters.Count(name) > 1);
}

// False: it is given, and no size.
bool ReadSize(const BodyMap& parameters, std::string_view name, std::optional<uint32_t>* size) {
  *size = CountIn(parameters, name, PushIdentity::kMaxSize);
  return size->has_value() || !IsGiven(parameters, name);
}

}  // namespace

bool SaysPush(const BodyMap& parameters) {
  const BodyMap::Member* const mode = OnlyMember(parameters, kMode);
  return mode != nullptr && mode->Holds("push");
}

std::optional<PushIdentity> ReadPushIdentity(const BodyMap& parameters) {
  if (!parameters.ok() || (IsGiven(parameters, kMode) && !SaysPush(parameters))) return std::nullopt;
  std::optional<std::string> engine_id = TextIn(parameters, "remote_engine_id", PushIdentity::kMaxText);
  std::optional<std::string> host = TextIn(parameters, "remote_host", PushIdentity::kMaxText);
  const std::optional<uint32_t> port = CountIn(parameters, "remote_port", UINT16_MAX);
  std::optional<uint32_t> tp_size;
  std::optional<uint32_t> pp_size;
  const bool fine = ReadSize(parameters, "tp_size", &tp_size) && ReadSize(parameters, "pp_size", &pp_size);
  if (!engine_id || !host || !port || !fine) return std::nullopt;
  return PushIdentity{
      .engine_id = *std::move(engine_id),
      .host = *std::move(host),
      .port = static_cast<uint16_t>(*port),
      .tp_size = tp_size.value_or(1),
      .pp_size = pp_size};
}

}  // namespace vllm_router
