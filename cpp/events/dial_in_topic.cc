#include "events/dial_in_topic.h"

#include <cstdint>
#include <optional>

#include "base/text.h"
#include "events/kv_source.h"

namespace vllm_router {

std::optional<DialInTopic> ParseDialInTopic(std::string_view topic) {
  if (!topic.starts_with(kDialInTopicPrefix)) return std::nullopt;
  topic.remove_prefix(kDialInTopicPrefix.size());
  const size_t end = topic.find('@');
  if (end == std::string_view::npos) return std::nullopt;
  std::string_view address = topic.substr(0, end);
  std::string_view port;
  if (address.starts_with('[')) {
    const size_t close = address.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    port = address.substr(close + 1);
    address = address.substr(1, close - 1);
  } else if (const size_t colon = address.find(':');
             colon != std::string_view::npos && address.find(':', colon + 1) == std::string_view::npos) {
    port = address.substr(colon);
    address = address.substr(0, colon);
  }
  if (address.empty()) return std::nullopt;
  DialInTopic parsed{.host = address};
  if (!port.empty()) {
    const std::optional<uint64_t> number = port.front() == ':' ? ParseDecimal(port.substr(1)) : std::nullopt;
    if (!number || *number == 0 || *number > UINT16_MAX) return std::nullopt;
    parsed.port = static_cast<uint16_t>(*number);
  }
  return parsed;
}

Status CheckBindEndpoint(std::string_view option, std::string_view endpoint) {
  // As an endpoint to connect to, but for these: every address, and any free port.
  std::string concrete = ReachableEndpoint(endpoint, "localhost");
  if (concrete.starts_with("tcp://") && concrete.ends_with(":*"))
    concrete.replace(concrete.size() - 1, 1, "1");
  if (const Status status = CheckEndpoint(option, concrete); !status.ok()) {
    return absl::InvalidArgumentError(Concat(
        option, ": endpoint ", Quoted(endpoint),
        " cannot be bound; write tcp://*:PORT, tcp://ADDRESS:PORT or ipc://PATH, with a port of 1 to 65535"));
  }
  return absl::OkStatus();
}

}  // namespace vllm_router
