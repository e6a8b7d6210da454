#include "picker/endpoint_subset.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace vllm_router {
namespace {

using Place = std::pair<std::string_view, int32_t>;

}  // namespace

std::optional<EndpointName> ParseEndpointName(std::string_view text) {
  text = TrimBlanks(text);
  std::string_view host;
  std::string_view rest;
  if (text.starts_with('[')) {
    const size_t end = text.find(']');
    if (end == std::string_view::npos) return std::nullopt;
    host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
  } else {
    const size_t colon = text.find(':');
    const bool has_port = colon != std::string_view::npos && colon == text.rfind(':');
    host = has_port ? text.substr(0, colon) : text;
    rest = has_port ? text.substr(colon) : std::string_view();
  }
  if (host.empty()) return std::nullopt;
  if (rest.empty()) return EndpointName{.host = host, .port = std::nullopt};
  const std::optional<uint64_t> port = rest.front() == ':' ? ParseDecimal(rest.substr(1)) : std::nullopt;
  if (!port || *port == 0 || *port > 65'535) return std::nullopt;
  return EndpointName{.host = host, .port = static_cast<uint16_t>(*port)};
}

std::string EndpointText(std::string_view host, uint16_t port) {
  const bool is_v6 = host.find(':') != std::string_view::npos;
  return Concat(is_v6 ? "[" : "", host, is_v6 ? "]:" : ":", port);
}

StatusOr<std::optional<EndpointSubset>> EndpointSubset::Read(const std::optional<StructValue>& hint) {
  std::vector<std::string_view> texts;
  if (hint && hint->kind == StructValue::Kind::kString) {
    texts.push_back(hint->bytes);
  } else if (hint && hint->kind == StructValue::Kind::kList) {
    ROUTER_RETURN_IF_ERROR(ReadStrings(hint->bytes, &texts));
  } else {
    return std::optional<EndpointSubset>();
  }
  EndpointSubset subset;
  for (std::string_view text : texts) {
    for (size_t comma = 0; comma != std::string_view::npos;) {
      comma = text.find(',');
      subset.Add(text.substr(0, comma));
      if (subset.size() > kMaxExtProcListed) {
        return absl::ResourceExhaustedError(
            Concat("the subset of a request names more than ", kMaxExtProcListed, " endpoints; name fewer"));
      }
      if (comma != std::string_view::npos) text.remove_prefix(comma + 1);
    }
  }
  std::sort(subset.entries_.begin(), subset.entries_.end(), [](const Entry& a, const Entry& b) {
    return Place(a.host, a.port) < Place(b.host, b.port);
  });
  return std::optional<EndpointSubset>(std::move(subset));
}

bool EndpointSubset::Contains(std::string_view host, uint16_t port) const {
  return Has(host, kAllPorts) || Has(host, port);
}

void EndpointSubset::Add(std::string_view text) {
  const std::optional<EndpointName> name = ParseEndpointName(text);
  if (!name) return;
  entries_.push_back({.host = AsciiLower(name->host), .port = name->port ? int32_t{*name->port} : kAllPorts});
}

bool EndpointSubset::Has(std::string_view host, int32_t port) const {
  const auto found = std::lower_bound(
      entries_.begin(), entries_.end(), Place(host, port),
      [](const Entry& entry, const Place& place) { return Place(entry.host, entry.port) < place; });
  return found != entries_.end() && found->host == host && found->port == port;
}

}  // namespace vllm_router
