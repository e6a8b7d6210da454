#include "routing/transfer_members.h"

namespace vllm_router {
namespace {

constexpr std::string_view kKv = "kv_transfer_params";
constexpr std::string_view kEc = "ec_transfer_params";
constexpr std::string_view kBootstrap = "bootstrap_";
constexpr std::string_view kAllBootstrap = "bootstrap_*";

using Strip = StrippedMembers (*)(const BodyMap& object, BodyPatch* patch);

StrippedMembers StripHere(const BodyMap& object, BodyPatch* patch) {
  StrippedMembers found;
  std::string scratch;
  for (const BodyMap::Member& member : object.members()) {
    const std::string_view name = member.Name(&scratch).value_or("");
    if (name == kKv) ++found.kv_transfer_params;
    if (name == kEc) ++found.ec_transfer_params;
    if (name.starts_with(kBootstrap)) ++found.bootstrap;
  }
  if (found.kv_transfer_params > 0) patch->Remove(kKv);
  if (found.ec_transfer_params > 0) patch->Remove(kEc);
  if (found.bootstrap > 0) patch->Remove(kAllBootstrap);
  return found;
}

void AddTo(const StrippedMembers& some, StrippedMembers* all) {
  all->kv_transfer_params += some.kv_transfer_params;
  all->ec_transfer_params += some.ec_transfer_params;
  all->bootstrap += some.bootstrap;
  all->unreadable |= some.unreadable;
}

// `strip` in each member `name` that is an object; if that changes one, the last of them is the only one left. An
// object that is damaged stays, and the worker rejects it.
StrippedMembers StripInside(const BodyMap& object, std::string_view name, Strip strip, BodyPatch* patch) {
  StrippedMembers found;
  for (const BodyMap::Member& member : object.members()) {
    if (member.type != BodyMap::Type::kObject || !member.Is(name)) continue;
    const BodyMap inner = BodyMap::Read(member.value);
    BodyPatch inner_patch;
    AddTo(strip(inner, &inner_patch), &found);
    found.unreadable |= inner.problem() == BodyMap::Problem::kTooManyMembers;
  }
  if (found.all() == 0) return found;
  const BodyMap::Member* const last = object.Find(name);
  const BodyMap inner = BodyMap::Read(last->value);
  if (inner.ok()) {
    BodyPatch inner_patch;
    strip(inner, &inner_patch);
    patch->InsertPatched(name, inner, inner_patch);
  } else {
    patch->InsertBytes(name, last->value);
  }
  return found;
}

}  // namespace

StrippedMembers StripSamplingParams(const BodyMap& sampling_params, BodyPatch* patch) {
  return StripInside(sampling_params, "extra_args", StripHere, patch);
}

StrippedMembers StripTransferMembers(const BodyMap& body, BodyPatch* patch) {
  StrippedMembers found = StripHere(body, patch);
  AddTo(StripInside(body, "vllm_xargs", StripHere, patch), &found);
  AddTo(StripInside(body, "extra_args", StripHere, patch), &found);
  AddTo(StripInside(body, "sampling_params", StripSamplingParams, patch), &found);
  return found;
}

}  // namespace vllm_router
