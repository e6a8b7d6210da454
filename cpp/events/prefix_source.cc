#include "events/prefix_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxSourceNameBytes = 128;
constexpr size_t kMaxPathBytes = 2048;

bool IsVisible(char c) { return c > ' ' && c < '\x7f'; }

}  // namespace

StatusOr<PrefixSource> ParsePrefixSource(std::string_view option, std::string_view value) {
  const auto invalid = [&](const auto&... reason) {
    return absl::InvalidArgumentError(Concat(option, ": ", reason...));
  };
  const size_t equals = value.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals > kMaxSourceNameBytes) {
    return invalid(
        Quoted(value), " is not NAME=URL[,reconnect_interval_ms=N][,worker=URL], with a name of 1 to ",
        kMaxSourceNameBytes, " bytes");
  }
  PrefixSource source{.name = std::string(value.substr(0, equals)), .endpoint = {}, .target = {}};
  std::string_view rest = value.substr(equals + 1);
  const std::string_view url = rest.substr(0, rest.find(','));
  rest.remove_prefix(std::min(rest.size(), url.size() + 1));

  const size_t scheme = url.find("://");
  const std::string named = AsciiLower(url.substr(0, scheme));
  if (scheme != std::string_view::npos && (named == "ws" || named == "wss")) {
    return absl::UnimplementedError(Concat(
        option, ": source ", Quoted(source.name), " has the scheme ", named,
        ", which is not implemented; use http or https"));
  }
  const size_t path = scheme == std::string_view::npos ? scheme : url.find_first_of("/?", scheme + 3);
  StatusOr<WorkerUrl> endpoint = ParseWorkerUrl(url.substr(0, path));
  if (endpoint.ok() && (endpoint->is_name || endpoint->rank.has_value())) {
    return invalid("source ", Quoted(source.name), " must name a host, as in http://host:8000/v1/kv_events");
  }
  if (!endpoint.ok()) {
    return invalid("source ", Quoted(source.name), ": ", std::string(endpoint.status().message()));
  }
  source.endpoint = *std::move(endpoint);
  if (path != std::string_view::npos) source.target = url.substr(path);
  if (!source.target.starts_with('/')) source.target.insert(0, "/");
  for (const char c : source.target) {
    if (!IsVisible(c) || c == '#' || source.target.size() > kMaxPathBytes) {
      return invalid(
          "the path of source ", Quoted(source.name), " must be visible ASCII characters without #, ",
          kMaxPathBytes, " at most; write others percent-encoded");
    }
  }

  while (!rest.empty()) {
    const std::string_view part = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), part.size() + 1));
    if (part.starts_with("worker=")) {
      StatusOr<WorkerUrl> worker = ParseWorkerUrl(part.substr(part.find('=') + 1));
      if (!worker.ok()) {
        return invalid("source ", Quoted(source.name), ": ", std::string(worker.status().message()));
      }
      source.worker = std::move(worker->url);
    } else if (part.starts_with("reconnect_interval_ms=")) {
      const std::string_view digits = part.substr(part.find('=') + 1);
      const std::optional<uint64_t> number = ParseDecimal(digits);
      if (!number || *number == 0 || *number > PrefixSource::kLongestReconnectMs) {
        return invalid(
            "source ", Quoted(source.name), " has the reconnect_interval_ms ", Quoted(digits),
            "; it must be a whole number between 1 and ", PrefixSource::kLongestReconnectMs);
      }
      source.reconnect_ms = static_cast<int64_t>(*number);
    } else {
      return invalid(
          "source ", Quoted(source.name), " has ", Quoted(part),
          "; after its URL may follow reconnect_interval_ms=N and worker=URL (write a comma of the URL as "
          "%2C)");
    }
  }
  return source;
}

StatusOr<uint32_t> FindWorkerOf(const PrefixSource& source, const FleetView& fleet) {
  if (!source.worker.empty()) {
    if (const std::optional<uint32_t> position = fleet.Find(source.worker); position) return *position;
    return absl::NotFoundError(Concat(
        "source ", Quoted(source.name), " names the worker ", Quoted(source.worker),
        ", which is none of the fleet now"));
  }
  std::optional<uint32_t> found;
  for (uint32_t position = 0; position < fleet.members().size(); ++position) {
    const WorkerUrl& url = fleet.worker(position).url;
    if (url.is_name || url.port != source.endpoint.port || !EqualsIgnoreCase(url.host, source.endpoint.host))
      continue;
    if (found) {
      return absl::InvalidArgumentError(Concat(
          "source ", Quoted(source.name), " is at the host and port of several workers, ",
          Quoted(fleet.worker(*found).url.url), " and ", Quoted(url.url), "; name its worker by worker=URL"));
    }
    found = position;
  }
  if (found) return *found;
  return absl::NotFoundError(Concat(
      "source ", Quoted(source.name), " is at ", Quoted(source.endpoint.authority),
      ", where no worker of the fleet is now; name its worker by worker=URL"));
}

}  // namespace vllm_router
