#include "tracing/otlp_settings.h"

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "base/text.h"
#include "base/version.h"

namespace vllm_router {
namespace {

constexpr std::string_view kFlag = "otlp_traces_endpoint";
constexpr std::string_view kTracesVariable = "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT";
constexpr std::string_view kBaseVariable = "OTEL_EXPORTER_OTLP_ENDPOINT";
constexpr std::string_view kDefaultEndpoint = "http://localhost:4318";
constexpr std::string_view kTracesPath = "/v1/traces";
constexpr uint16_t kGrpcPort = 4317;
constexpr std::string_view kDefaultService = "vllm-router";
constexpr std::string_view kGenAi = "gen_ai_latest_experimental";

Status GrpcRefused(std::string_view name, std::string_view what, const WorkerUrl& url) {
  const bool is_ipv6 = url.host.find(':') != std::string::npos;
  return absl::InvalidArgumentError(Concat(
      name, " is ", what, "; name the collector's HTTP port, usually http://", is_ipv6 ? "[" : "", url.host,
      is_ipv6 ? "]" : "", ":4318"));
}

// A URL of which nothing is shown unless it is a good one: it might hold a password.
StatusOr<WorkerUrl> ParseEndpoint(std::string_view name, std::string_view text) {
  const std::string scheme = AsciiLower(text.substr(0, text.find("://")));
  const bool has_scheme = scheme.size() != text.size();
  const bool is_grpc = has_scheme && (scheme == "grpc" || scheme == "grpcs");
  const std::string_view rest = has_scheme ? text.substr(scheme.size() + 3) : text;
  const bool is_plain = is_grpc || !has_scheme;
  StatusOr<WorkerUrl> url = ParseWorkerUrl(is_plain ? Concat("http://", rest) : std::string(text));
  if (!url.ok() || url->is_name || url->rank) {
    return absl::InvalidArgumentError(Concat(
        name, " cannot be used: it ", url.ok() ? "is no URL of a collector" : MisfitOf(url.status()),
        "; write it as http://collector:4318, or https:// for TLS"));
  }
  if (is_grpc)
    return GrpcRefused(name, Concat(scheme, "://", url->authority, ", which is OTLP over gRPC"), *url);
  if (url->port == kGrpcPort) {
    return GrpcRefused(
        name, Concat(url->tls ? "https://" : "http://", url->authority, ", the port of OTLP over gRPC"),
        *url);
  }
  return url;
}

bool IsTokenCharacter(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
         kOthers.find(c) != std::string_view::npos;
}

using Pairs = std::vector<std::pair<std::string, std::string>>;

// "key=value,key=value", values percent-encoded. Nullopt if it is anything else.
std::optional<Pairs> ParsePairs(std::string_view text) {
  Pairs pairs;
  while (!text.empty()) {
    const size_t comma = std::min(text.find(','), text.size());
    const std::string_view pair = TrimBlanks(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (pair.empty()) continue;
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) return std::nullopt;
    const std::string_view key = TrimBlanks(pair.substr(0, equals));
    std::optional<std::string> value = PercentDecoded(TrimBlanks(pair.substr(equals + 1)), false);
    if (key.empty() || !value) return std::nullopt;
    pairs.emplace_back(key, *std::move(value));
  }
  return pairs;
}

StatusOr<std::string> ReadHeaders(const Environment& environment) {
  for (const std::string_view name : {"OTEL_EXPORTER_OTLP_TRACES_HEADERS", "OTEL_EXPORTER_OTLP_HEADERS"}) {
    const std::string text = environment(name);
    if (text.empty()) continue;
    const std::optional<Pairs> pairs = ParsePairs(text);
    std::string lines;
    bool is_good = pairs.has_value();
    for (const auto& [key, value] : pairs.value_or(Pairs())) {
      const auto is_control = [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; };
      is_good =
          is_good && std::ranges::all_of(key, IsTokenCharacter) && std::ranges::none_of(value, is_control);
      lines += Concat(key, ": ", value, "\r\n");
    }
    if (is_good) return lines;
    return absl::InvalidArgumentError(Concat(
        name,
        " of the environment is no list of headers; write it as name=value,name=value, with values "
        "percent-encoded"));
  }
  return std::string();
}

}  // namespace

StatusOr<OtlpSettings> ReadOtlpSettings(
    std::string_view endpoint, std::string_view service_name, const Environment& environment) {
  OtlpSettings settings;
  const std::string traces = environment(kTracesVariable);
  const std::string base = environment(kBaseVariable);
  const bool is_flag = !endpoint.empty();
  const bool is_traces = !is_flag && !traces.empty();
  const bool is_base = !is_flag && !is_traces && !base.empty();
  StatusOr<WorkerUrl> url = ParseEndpoint(
      is_base     ? kBaseVariable
      : is_traces ? kTracesVariable
                  : kFlag,
      is_flag     ? endpoint
      : is_traces ? std::string_view(traces)
      : is_base   ? std::string_view(base)
                  : kDefaultEndpoint);
  if (!url.ok()) return url.status();
  settings.url = *std::move(url);
  std::string& path = settings.url.prefix;
  if (is_traces) {
    if (path.empty()) path.assign(1, '/');
  } else if (is_base || path.empty()) {
    path += kTracesPath;
  }

  StatusOr<std::string> headers = ReadHeaders(environment);
  if (!headers.ok()) return headers.status();
  settings.headers = *std::move(headers);

  const std::string named = environment("OTEL_SERVICE_NAME");
  if (!service_name.empty()) {
    settings.resource.emplace_back("service.name", service_name);
  } else if (!named.empty()) {
    settings.resource.emplace_back("service.name", named);
  }
  const std::optional<Pairs> attributes = ParsePairs(environment("OTEL_RESOURCE_ATTRIBUTES"));
  if (!attributes) {
    return absl::InvalidArgumentError(
        "OTEL_RESOURCE_ATTRIBUTES of the environment is no list of attributes; write it as "
        "name=value,name=value, with values percent-encoded");
  }
  settings.resource.insert(settings.resource.end(), attributes->begin(), attributes->end());
  settings.resource.emplace_back("service.name", kDefaultService);
  settings.resource.emplace_back("service.version", Version());

  std::string stability = environment("OTEL_SEMCONV_STABILITY_OPT_IN");
  for (std::string_view rest = stability; !rest.empty();) {
    const size_t comma = std::min(rest.find(','), rest.size());
    settings.genai = settings.genai || TrimBlanks(rest.substr(0, comma)) == kGenAi;
    rest.remove_prefix(std::min(comma + 1, rest.size()));
  }
  return settings;
}

std::string ProcessEnvironment(std::string_view name) {
  const char* const value = std::getenv(std::string(name).c_str());
  return value != nullptr ? std::string(TrimBlanks(value)) : std::string();
}

}  // namespace vllm_router
