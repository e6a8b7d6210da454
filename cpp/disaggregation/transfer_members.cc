#include "disaggregation/transfer_members.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "routing/json_scanner.h"

namespace vllm_router {
namespace {

constexpr std::string_view kKv = "kv_transfer_params";
constexpr std::string_view kEc = "ec_transfer_params";
constexpr std::string_view kHints = "kv_hints";
constexpr std::string_view kBootstrap = "bootstrap_";
constexpr std::string_view kAllBootstrap = "bootstrap_*";
constexpr std::array<std::string_view, 2> kIds = {"request_id", "rid"};
constexpr std::array<std::string_view, 3> kRanks = {
    "data_parallel_rank", "routed_dp_rank", "disagg_prefill_dp_rank"};

// Members in which engines look for further arguments of the request, or only of its sampling.
constexpr std::array<std::string_view, 2> kOfRequest = {"extra_body", "parameters"};
constexpr std::array<std::string_view, 3> kOfSampling = {"vllm_xargs", "extra_args", "sampling_params"};

constexpr int kDepth = 4;              // no engine looks further: parameters.sampling_params.extra_args
constexpr size_t kMaxElements = 4096;  // of a list of sampling_params, as of prompts

template <size_t N>
void Take(
    std::string_view name, const std::array<std::string_view, N>& names, size_t* count, BodyPatch* patch) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return;
  ++*count;
  patch->Remove(*found);
}

void AddTo(const StrippedMembers& some, StrippedMembers* all) {
  all->kv_transfer_params += some.kv_transfer_params;
  all->ec_transfer_params += some.ec_transfer_params;
  all->bootstrap += some.bootstrap;
  all->kv_hints += some.kv_hints;
  all->request_id += some.request_id;
  all->rank += some.rank;
  all->unreadable |= some.unreadable;
}

StrippedMembers Strip(const BodyMap& object, StripScope scope, int depth, BodyPatch* patch);

// What is left of a value, or nothing if nothing was removed. An object that is damaged stays, and the worker rejects it.
std::optional<std::string> StrippedObject(
    std::string_view object, StripScope scope, int depth, StrippedMembers* found) {
  const BodyMap map = BodyMap::Read(object);
  found->unreadable |= map.problem() == BodyMap::Problem::kTooManyMembers;
  if (!map.ok()) return std::nullopt;
  BodyPatch patch;
  const StrippedMembers inside = Strip(map, scope, depth, &patch);
  AddTo(inside, found);
  if (inside.all() == 0) return std::nullopt;
  return patch.Apply(map).Joined();
}

std::optional<std::string> StrippedList(
    std::string_view list, StripScope scope, int depth, StrippedMembers* found) {
  const std::optional<std::vector<std::string_view>> elements = JsonElements(list, kMaxElements + 1);
  if (!elements) return std::nullopt;
  found->unreadable |= elements->size() > kMaxElements;
  bool changed = false;
  std::string left = "[";
  for (const std::string_view element : *elements) {
    std::optional<std::string> object;
    if (element.starts_with('{')) object = StrippedObject(element, scope, depth, found);
    changed |= object.has_value();
    left.append(left.size() > 1 ? "," : "").append(object ? *object : element);
  }
  if (!changed) return std::nullopt;
  return left + "]";
}

// Every member of this name is looked at. If one loses something, the last is the only one left.
StrippedMembers StripInside(
    const BodyMap& object, std::string_view name, StripScope scope, int depth, BodyPatch* patch) {
  StrippedMembers found;
  std::optional<std::string> left;
  const BodyMap::Member* last = nullptr;
  for (const BodyMap::Member& member : object.members()) {
    if (!member.Is(name)) continue;
    last = &member;
    left.reset();
    if (member.type == BodyMap::Type::kObject) left = StrippedObject(member.value, scope, depth, &found);
    if (member.type == BodyMap::Type::kArray) left = StrippedList(member.value, scope, depth, &found);
  }
  if (found.all() == 0) return found;
  if (left) {
    patch->Insert(name, *left);
  } else {
    patch->InsertBytes(name, last->value);
  }
  return found;
}

StrippedMembers Strip(const BodyMap& object, StripScope scope, int depth, BodyPatch* patch) {
  StrippedMembers found;
  std::vector<std::string_view> of_request;  // names, once each
  std::vector<std::string_view> of_sampling;
  const auto note = [](std::string_view name, const auto& names, std::vector<std::string_view>* list) {
    const auto is = std::ranges::find(names, name);
    if (is != names.end() && std::ranges::find(*list, name) == list->end()) list->push_back(*is);
  };
  std::string scratch;
  for (const BodyMap::Member& member : object.members()) {
    const std::string_view name = member.Name(&scratch).value_or("");
    if (name == kKv) ++found.kv_transfer_params;
    if (name == kEc) ++found.ec_transfer_params;
    if (name == kHints) ++found.kv_hints;
    if (name.starts_with(kBootstrap)) ++found.bootstrap;
    if (scope == StripScope::kStaged) {
      Take(name, kIds, &found.request_id, patch);
      Take(name, kRanks, &found.rank, patch);
    }
    const bool may_hold = member.type == BodyMap::Type::kObject || member.type == BodyMap::Type::kArray;
    if (!may_hold || depth == 0) continue;
    note(name, kOfRequest, &of_request);
    note(name, kOfSampling, &of_sampling);
  }
  if (found.kv_transfer_params > 0) patch->Remove(kKv);
  if (found.ec_transfer_params > 0) patch->Remove(kEc);
  if (found.bootstrap > 0) patch->Remove(kAllBootstrap);
  if (found.kv_hints > 0) patch->Remove(kHints);
  for (const std::string_view name : of_request)
    AddTo(StripInside(object, name, scope, depth - 1, patch), &found);
  for (const std::string_view name : of_sampling)
    AddTo(StripInside(object, name, StripScope::kTransfers, depth - 1, patch), &found);
  return found;
}

}  // namespace

StrippedMembers StripSamplingParams(const BodyMap& sampling_params, BodyPatch* patch) {
  return Strip(sampling_params, StripScope::kTransfers, kDepth - 1, patch);
}

StrippedMembers StripTransferMembers(const BodyMap& body, StripScope scope, BodyPatch* patch) {
  return Strip(body, scope, kDepth, patch);
}

}  // namespace vllm_router
