#include "simulation/transfer_params.h"

#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <set>

#include "routing/json_scanner.h"

namespace vllm_router {

namespace dom = simdjson::dom;

namespace {

// The name of a member that its object has twice.
std::optional<std::string> DuplicateMember(dom::element element) {
  if (element.is_array()) {
    for (const dom::element item : dom::array(element)) {
      if (auto found = DuplicateMember(item)) return found;
    }
  } else if (element.is_object()) {
    std::set<std::string_view> seen;
    for (const auto [name, value] : dom::object(element)) {
      if (!seen.insert(name).second) return std::string(name);
      if (auto found = DuplicateMember(value)) return found;
    }
  }
  return std::nullopt;
}

bool ReadText(const dom::object& object, std::string_view name, std::string* text) {
  std::string_view found;
  if (object.at_key(name).get(found) != simdjson::SUCCESS) return false;
  *text = found;
  return true;
}

bool ReadPort(const dom::object& object, uint16_t* port) {
  uint64_t number = 0;
  if (object.at_key("remote_port").get(number) != simdjson::SUCCESS || number > 65535) return false;
  *port = static_cast<uint16_t>(number);
  return true;
}

// Numbers at any depth: a list for each group of layers.
void AppendBlocks(dom::element element, std::vector<uint32_t>* blocks) {
  uint64_t number = 0;
  if (element.is_array()) {
    for (const dom::element item : dom::array(element)) AppendBlocks(item, blocks);
  } else if (element.get(number) == simdjson::SUCCESS) {
    blocks->push_back(static_cast<uint32_t>(std::min<uint64_t>(number, UINT32_MAX)));
  }
}

void ReadFlag(const dom::object& object, std::string_view name, bool* value) {
  bool flag = false;
  if (object.at_key(name).get(flag) == simdjson::SUCCESS) *value = flag;
}

TransferParams ParamsOf(const dom::object& object) {
  TransferParams params;
  ReadFlag(object, "do_remote_decode", &params.remote_decode);
  ReadFlag(object, "do_remote_prefill", &params.remote_prefill);
  dom::element blocks;
  const bool has_blocks =
      object.at_key("remote_block_ids").get(blocks) == simdjson::SUCCESS && !blocks.is_null();
  if (has_blocks) AppendBlocks(blocks, &params.blocks);
  uint64_t cached = 0;
  if (object.at_key("remote_prefill_cached_tokens").get(cached) == simdjson::SUCCESS) {
    params.cached_tokens = cached;
  }
  params.whole = ReadText(object, "remote_engine_id", &params.engine_id);
  params.whole &= ReadText(object, "remote_request_id", &params.request_id);
  params.whole &= ReadText(object, "remote_host", &params.host);
  params.whole &= ReadPort(object, &params.port);
  params.whole &= has_blocks;
  return params;
}

}  // namespace

StatusOr<TransferParams> ReadTransferParams(std::string_view body) {
  thread_local dom::parser parser;
  dom::element document;
  dom::object object;
  body = WithoutByteOrderMark(body);
  if (parser.parse(body.data(), body.size()).get(document) != simdjson::SUCCESS) return TransferParams{};
  if (document.get(object) != simdjson::SUCCESS) return TransferParams{};
  if (const auto name = DuplicateMember(document)) {
    return absl::InvalidArgumentError("`" + *name + "` is a member twice; send it once.");
  }
  dom::element params;
  if (object.at_key("kv_transfer_params").get(params) != simdjson::SUCCESS || params.is_null()) {
    return TransferParams{};
  }
  dom::object members;
  if (params.get(members) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError("`kv_transfer_params` must be an object or null.");
  }
  return ParamsOf(members);
}

}  // namespace vllm_router
