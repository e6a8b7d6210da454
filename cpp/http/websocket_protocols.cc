#include "http/websocket_protocols.h"

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::string_view kKeyPrefix = "openai-insecure-api-key.";

// Calls visit(protocol) for each that is offered.
template <typename Visit>
void ForEachProtocol(std::string_view value, Visit visit) {
  while (!value.empty()) {
    const size_t comma = value.find(',');
    const std::string_view protocol = TrimBlanks(value.substr(0, comma));
    if (!protocol.empty()) visit(protocol);
    if (comma == std::string_view::npos) break;
    value.remove_prefix(comma + 1);
  }
}

bool IsKey(std::string_view protocol) {
  return EqualsIgnoreCase(protocol.substr(0, kKeyPrefix.size()), kKeyPrefix);
}

}  // namespace

std::optional<std::string_view> KeyOfProtocols(std::string_view value) {
  std::string_view key;
  int keys = 0;
  ForEachProtocol(value, [&](std::string_view protocol) {
    if (!IsKey(protocol)) return;
    key = protocol.substr(kKeyPrefix.size());
    ++keys;
  });
  if (keys > 1) return std::nullopt;
  return key;
}

std::string WithoutKeys(std::string_view value) {
  std::string rest;
  ForEachProtocol(value, [&rest](std::string_view protocol) {
    if (IsKey(protocol)) return;
    if (!rest.empty()) rest += ", ";
    rest += protocol;
  });
  return rest;
}

}  // namespace vllm_router
