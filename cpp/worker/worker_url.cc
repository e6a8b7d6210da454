#include "worker/worker_url.h"

#include <absl/strings/cord.h>
#include <arpa/inet.h>

#include <algorithm>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxUrlBytes = 2048;  // generous; anything longer is a mistake
constexpr size_t kMaxHostBytes = 253;  // the longest name that DNS can carry
constexpr uint64_t kMaxRank = 65'535;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlphanumeric(char c) { return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

// The payload of an error that MisfitOf() returns.
constexpr char kMisfit[] = "vllm_router.worker_url.misfit";

Status WithMisfit(Status error, std::string_view misfit) {
  error.SetPayload(kMisfit, absl::Cord(absl::string_view(misfit.data(), misfit.size())));
  return error;
}

// `misfit` says the same as `why`, which shows a part of the URL; by default `why` shows none.
Status Bad(std::string_view url, std::string_view why, std::string_view misfit = {}) {
  return WithMisfit(
      absl::InvalidArgumentError(Concat("worker URL ", Quoted(url), " ", why)),
      misfit.empty() ? why : misfit);
}

// Each scheme that workers do not have gets its own error message.
Status BadScheme(std::string_view url, std::string_view scheme) {
  if (scheme == "grpc" || scheme == "grpcs") {
    return absl::UnimplementedError(Concat(
        "worker URL ", Quoted(url),
        ": workers are reached over HTTP, not gRPC; give the engine's http:// address"));
  }
  if (scheme == "unix") {
    return absl::UnimplementedError(Concat(
        "worker URL ", Quoted(url),
        ": Unix sockets are not implemented yet; let the worker listen on http://127.0.0.1:port"));
  }
  return Bad(
      url, Concat(
               "has the scheme ", Quoted(scheme),
               "; workers are reached over http:// or https:// (an embedded router also takes names, "
               "ray://<id> and name://<id>)"));
}

// Splits "http://" off.
Status TakeScheme(std::string_view url, std::string_view* rest, WorkerUrl* parsed) {
  const size_t end = url.find("://");
  if (end == std::string_view::npos) {
    return Bad(url, "has no scheme; write it as http://host:port, for example http://10.0.0.1:8000");
  }
  *rest = url.substr(end + 3);
  const std::string scheme = AsciiLower(url.substr(0, end));
  parsed->tls = scheme == "https";
  parsed->is_name = scheme == "ray" || scheme == "name";
  if (parsed->tls || parsed->is_name || scheme == "http") return absl::OkStatus();
  return WithMisfit(
      BadScheme(url, scheme), "has another scheme than http and https, over which workers are reached");
}

void DropTrailingSlashes(std::string_view* text) {
  while (text->ends_with('/')) text->remove_suffix(1);
}

// "@2" at the end. A '@' that is not followed by digits alone is left to the other parsers.
Status TakeRank(std::string_view url, std::string_view* rest, std::optional<uint32_t>* rank) {
  const size_t at = rest->rfind('@');
  if (at == std::string_view::npos) return absl::OkStatus();
  const std::string_view digits = rest->substr(at + 1);
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), IsDigit)) return absl::OkStatus();
  const std::optional<uint64_t> value = ParseDecimal(digits);
  if (!value || *value > kMaxRank) {
    return Bad(
        url, Concat("has the data-parallel rank ", digits, "; ranks are at most ", kMaxRank),
        Concat("has a data-parallel rank above ", kMaxRank));
  }
  *rank = static_cast<uint32_t>(*value);
  rest->remove_suffix(digits.size() + 1);
  return absl::OkStatus();
}

Status CheckPrefix(std::string_view url, std::string_view prefix) {
  constexpr std::string_view kAllowed = "/-._~!$&'()*+,;=:@%";
  for (size_t i = 0; i < prefix.size(); ++i) {
    const char c = prefix[i];
    if (!IsAlphanumeric(c) && kAllowed.find(c) == std::string_view::npos) {
      return Bad(
          url, Concat("has ", Quoted(prefix.substr(i, 1)), " in its path; write it percent-encoded"),
          "has a character in its path that must be written percent-encoded");
    }
    if (c != '%') continue;
    if (i + 2 >= prefix.size() || HexDigit(prefix[i + 1]) < 0 || HexDigit(prefix[i + 2]) < 0) {
      return Bad(
          url,
          "has a '%' in its path that two hexadecimal digits do not follow; write %25 for a percent sign");
    }
    if (prefix.substr(i + 1, 2) == "00") return Bad(url, "has an encoded NUL (%00) in its path; remove it");
  }
  return absl::OkStatus();
}

Status TakePort(std::string_view url, std::string_view digits, uint16_t* port) {
  const std::optional<uint64_t> value = ParseDecimal(digits);
  if (!value || *value < 1 || *value > 65'535) {
    return Bad(
        url,
        Concat(
            "has the port ", Quoted(digits),
            "; a port is a number from 1 to 65535 (without one, 80 is meant, 443 for https)"),
        "has a port that is no number between 1 and 65535");
  }
  *port = static_cast<uint16_t>(*value);
  return absl::OkStatus();
}

Status CheckName(std::string_view url, std::string_view host) {
  if (host.empty()) return Bad(url, "has no host; write it as http://host:port");
  if (host.size() > kMaxHostBytes) {
    return Bad(url, Concat("has a host of ", host.size(), " bytes; a host name has at most ", kMaxHostBytes));
  }
  for (const char c : host) {
    if (IsAlphanumeric(c) || c == '-' || c == '.' || c == '_') continue;
    if (c == ':')
      return Bad(url, "has more than one ':' after the host; write an IPv6 address as http://[::1]:8000");
    return Bad(
        url,
        Concat(
            "has ", Quoted(std::string_view(&c, 1)),
            " in its host; a host is letters, digits, '-', '.' and '_' (other names in their xn-- form)"),
        "has a host of other characters than letters, digits, '-', '.' and '_' (write other names in their "
        "xn-- form)");
  }
  if (host.front() == '.' || host.find("..") != std::string_view::npos) {
    return Bad(
        url, Concat("has an empty label in its host ", Quoted(host)),
        Concat("has an empty label in its host ", host));
  }
  // A name that ends in a number is an IPv4 address to every resolver, so it must be a whole one.
  const std::string_view last = host.substr(host.rfind('.') + 1);
  in_addr address;
  if (!last.empty() && std::all_of(last.begin(), last.end(), IsDigit) &&
      inet_pton(AF_INET, std::string(host).c_str(), &address) != 1) {
    return Bad(url, Concat("has the host ", host, ", which is not an IPv4 address such as 10.0.0.1"));
  }
  return absl::OkStatus();
}

uint16_t DefaultPort(const WorkerUrl& url) { return url.tls ? 443 : 80; }

// "host", "host:port", "[v6]", "[v6]:port".
Status TakeAuthority(std::string_view url, std::string_view authority, WorkerUrl* parsed) {
  std::string_view after_host;
  if (!authority.empty() && authority.front() == '[') {
    const size_t end = authority.find(']');
    if (end == std::string_view::npos) return Bad(url, "opens '[' without ']'; write http://[::1]:8000");
    parsed->host = std::string(authority.substr(1, end - 1));
    after_host = authority.substr(end + 1);
    in6_addr address;
    if (inet_pton(AF_INET6, parsed->host.c_str(), &address) != 1) {
      return Bad(
          url,
          Concat(
              "has ", Quoted(parsed->host),
              " in brackets, which is not an IPv6 address (zones are not supported)"),
          "has something in brackets that is not an IPv6 address (zones are not supported)");
    }
    if (!after_host.empty() && after_host.front() != ':') {
      return Bad(
          url,
          Concat(
              "has ", Quoted(after_host),
              " after the address; only a port may follow, as in http://[::1]:8000"),
          "has something after the address; only a port may follow, as in http://[::1]:8000");
    }
    parsed->authority = Concat("[", parsed->host, "]");
  } else {
    const size_t colon = authority.rfind(':');
    parsed->host = std::string(authority.substr(0, colon));
    if (colon != std::string_view::npos) after_host = authority.substr(colon);
    ROUTER_RETURN_IF_ERROR(CheckName(url, parsed->host));
    parsed->authority = parsed->host;
  }
  if (!after_host.empty()) {
    ROUTER_RETURN_IF_ERROR(TakePort(url, after_host.substr(1), &parsed->port));
    if (parsed->port != DefaultPort(*parsed)) parsed->authority += Concat(":", parsed->port);
  }
  return absl::OkStatus();
}

Status CheckBytes(std::string_view url) {
  if (url.empty()) {
    return WithMisfit(
        absl::InvalidArgumentError("a worker URL is empty; write it as http://host:port"),
        "is empty; write it as http://host:port");
  }
  if (url.size() > kMaxUrlBytes) {
    return Bad(url, Concat("is ", url.size(), " bytes long; the limit is ", kMaxUrlBytes));
  }
  for (const char c : url) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == ' ' || c == '\t') {
      return Bad(
          url, "contains a blank; remove it, or give two URLs as two values", "contains a blank; remove it");
    }
    if (c == '\0')
      return Bad(url, "contains a NUL byte; remove it", "contains a control character; remove it");
    if (byte < 0x20 || byte == 0x7f) return Bad(url, "contains a control character; remove it");
    if (byte >= 0x80) return Bad(url, "contains a character outside ASCII; write the host in its xn-- form");
    if (c == ',') {
      return Bad(url, "contains a comma; give several URLs as several values", "contains a comma; remove it");
    }
  }
  return absl::OkStatus();
}

}  // namespace

StatusOr<WorkerUrl> ParseWorkerUrl(std::string_view url) {
  ROUTER_RETURN_IF_ERROR(CheckBytes(url));
  std::string_view rest;
  WorkerUrl parsed;
  ROUTER_RETURN_IF_ERROR(TakeScheme(url, &rest, &parsed));
  const std::string_view scheme = url.substr(0, url.size() - rest.size());

  // On both sides of the rank, so that a registered URL parses to itself.
  DropTrailingSlashes(&rest);
  ROUTER_RETURN_IF_ERROR(TakeRank(url, &rest, &parsed.rank));
  DropTrailingSlashes(&rest);
  if (parsed.is_name) {
    if (rest.empty()) return Bad(url, "has nothing after the scheme; write name://<id>");
    parsed.port = 0;
    parsed.host = std::string(rest);
    parsed.base = Concat(scheme, rest);
    parsed.url = parsed.rank ? Concat(parsed.base, "@", *parsed.rank) : parsed.base;
    return parsed;
  }
  parsed.port = DefaultPort(parsed);

  std::string_view authority = rest.substr(0, rest.find_first_of("/?#"));
  if (const size_t at = authority.rfind('@'); at != std::string_view::npos) {
    const std::string shown = Concat(scheme, "...", rest.substr(at));
    constexpr std::string_view kUserName =
        "has something before '@' that reads as a user name; workers take no user names or passwords";
    return Bad(
        shown, Concat(kUserName, " (a data-parallel rank is a number at the end, as in http://host:8000@2)"),
        kUserName);
  }
  std::string_view prefix = rest.substr(authority.size());
  if (prefix.find('?') != std::string_view::npos) {
    return Bad(url, "has a query; a worker is a base address, so end it before '?'");
  }
  if (prefix.find('#') != std::string_view::npos) {
    return Bad(url, "has a fragment; a worker is a base address, so end it before '#'");
  }
  ROUTER_RETURN_IF_ERROR(TakeAuthority(url, authority, &parsed));
  ROUTER_RETURN_IF_ERROR(CheckPrefix(url, prefix));

  parsed.prefix = std::string(prefix);
  parsed.base = Concat(scheme, rest);
  parsed.url = parsed.rank ? Concat(parsed.base, "@", *parsed.rank) : parsed.base;
  return parsed;
}

Status RequireAddress(const WorkerUrl& url) {
  if (!url.is_name) return absl::OkStatus();
  return Bad(
      url.url,
      "is a name, and a router that serves connects to its workers; give their http://host:port, or embed "
      "the "
      "router and connect to them yourself (Router.select)");
}

bool SameHost(const WorkerUrl& a, const WorkerUrl& b) {
  if (a.is_name || b.is_name) return a.is_name == b.is_name && a.base == b.base;
  return a.tls == b.tls && a.port == b.port && a.prefix == b.prefix && EqualsIgnoreCase(a.host, b.host);
}

std::string HostKey(const WorkerUrl& url) {
  if (url.is_name) return url.base;
  return Concat(url.tls ? "https://" : "http://", AsciiLower(url.host), " ", url.port, url.prefix);
}

std::string WorkerKey(const WorkerUrl& url) {
  std::string key = HostKey(url);
  if (url.rank) key += Concat("@", *url.rank);
  return key;
}

WorkerUrl WithRank(WorkerUrl url, uint32_t rank) {
  url.rank = rank;
  url.url = Concat(url.base, "@", rank);
  return url;
}

std::string MisfitOf(const Status& status) {
  const auto misfit = status.GetPayload(kMisfit);
  return misfit ? std::string(*misfit) : "is no URL of a worker";
}

}  // namespace vllm_router
