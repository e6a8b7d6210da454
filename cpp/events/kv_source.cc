#include "events/kv_source.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "worker/worker_url.h"

namespace vllm_router {
namespace {

constexpr std::string_view kTcp = "tcp://";
constexpr std::string_view kIpc = "ipc://";
constexpr size_t kMaxIpcPath = 107;  // of a Unix socket's address

struct TcpParts {
  std::string_view host;  // with brackets, if it has them
  std::string_view port;
};

// nullopt: not tcp, or no colon that separates host and port.
std::optional<TcpParts> SplitTcp(std::string_view endpoint) {
  if (!endpoint.starts_with(kTcp)) return std::nullopt;
  endpoint.remove_prefix(kTcp.size());
  const size_t colon = endpoint.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  return TcpParts{endpoint.substr(0, colon), endpoint.substr(colon + 1)};
}

bool StandsForAll(std::string_view host) {
  constexpr std::array<std::string_view, 4> kAll = {"*", "0.0.0.0", "[::]", "::"};
  for (const std::string_view all : kAll) {
    if (host == all) return true;
  }
  return false;
}

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

}  // namespace

Status CheckEndpoint(std::string_view option, std::string_view endpoint) {
  const auto invalid = [&](std::string_view reason) {
    return absl::InvalidArgumentError(Concat(option, ": endpoint ", Quoted(endpoint), " ", reason));
  };
  if (endpoint.starts_with(kIpc)) {
    const size_t size = endpoint.size() - kIpc.size();
    return size != 0 && size <= kMaxIpcPath
               ? absl::OkStatus()
               : invalid("needs a path of 1 to 107 bytes; write ipc:///path/of/the/socket");
  }
  const std::optional<TcpParts> parts = SplitTcp(endpoint);
  if (!parts || parts->host.empty()) return invalid("is not tcp://HOST:PORT or ipc://PATH");
  if (StandsForAll(parts->host)) {
    return invalid("stands for every address of the engine's host; name the host to connect to");
  }
  const std::optional<uint64_t> port = ParseDecimal(parts->port);
  if (!port || *port == 0 || *port > 65'535) return invalid("needs a port from 1 to 65535");
  if (endpoint.find_first_of(" \t;,/", kTcp.size()) != std::string_view::npos) {
    return invalid("has a character that no host and port have; write tcp://HOST:PORT");
  }
  return absl::OkStatus();
}

std::string_view KvSourceKindName(KvSourceKind kind) {
  constexpr std::string_view kNames[] = {"zmq", "trtllm"};
  return kNames[static_cast<size_t>(kind)];
}

StatusOr<NamedEndpoints> ParseNamedEndpoints(std::string_view option, std::string_view value) {
  // An endpoint has no '='.
  const size_t equals = value.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    return absl::InvalidArgumentError(Concat(
        option, ": ", Quoted(value), " is not WORKER_URL=ENDPOINT[,ENDPOINT...], one endpoint per rank"));
  }
  StatusOr<WorkerUrl> url = ParseWorkerUrl(value.substr(0, equals));
  if (!url.ok()) return absl::InvalidArgumentError(Concat(option, ": ", std::string(url.status().message())));
  NamedEndpoints named{.worker = std::move(url->url), .endpoints = {}};
  std::string_view rest = value.substr(equals + 1);
  for (;;) {
    const size_t comma = rest.find(',');
    const std::string_view endpoint = TrimBlanks(rest.substr(0, comma));
    if (Status status = CheckEndpoint(option, endpoint); !status.ok()) return status;
    named.endpoints.emplace_back(endpoint);
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  return named;
}

std::string ReachableEndpoint(std::string_view endpoint, std::string_view host) {
  const std::optional<TcpParts> parts = SplitTcp(endpoint);
  if (!parts || !StandsForAll(parts->host)) return std::string(endpoint);
  const bool is_ipv6 = host.find(':') != std::string_view::npos;
  return Concat(kTcp, is_ipv6 ? "[" : "", host, is_ipv6 ? "]" : "", ":", parts->port);
}

std::vector<KvSource> FairShare(std::vector<KvSource> sources, size_t most) {
  const auto begins = [&sources](size_t i) { return i == 0 || sources[i - 1].worker != sources[i].worker; };
  std::vector<size_t> place(sources.size());  // among its worker's
  size_t workers = 0;
  for (size_t i = 0; i < sources.size(); ++i) {
    workers += begins(i) ? 1 : 0;
    place[i] = begins(i) ? 0 : place[i - 1] + 1;
  }
  const size_t share = workers == 0 ? 0 : std::max<size_t>(1, most / workers);
  std::vector<KvSource> kept;
  for (size_t i = 0; i < sources.size() && kept.size() < most; ++i) {
    if (place[i] < share) kept.push_back(std::move(sources[i]));
  }
  return kept;
}

bool IsOnHost(std::string_view endpoint, std::string_view host) {
  const std::optional<TcpParts> parts = SplitTcp(endpoint);
  if (!parts) return false;
  std::string_view named = parts->host;
  if (named.starts_with('[') && named.ends_with(']')) named = named.substr(1, named.size() - 2);
  return EqualsIgnoreCase(named, host) || (IsLoopback(named) && IsLoopback(host));
}

}  // namespace vllm_router
