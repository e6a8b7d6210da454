#include "redis/redis_url.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/text.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxHostBytes = 253;

bool IsHostByte(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '.' ||
         c == '_';
}

bool IsHost(std::string_view host) {
  return !host.empty() && host.size() <= kMaxHostBytes && std::ranges::all_of(host, IsHostByte);
}

bool IsAddressOfV6(std::string_view host) {
  return host.find(':') != std::string_view::npos &&
         std::ranges::all_of(host, [](char c) { return HexDigit(c) >= 0 || c == ':' || c == '.'; });
}

}  // namespace

std::string RedisUrl::Shown() const {
  const bool v6 = host.find(':') != std::string::npos;
  return Concat(
      tls ? "rediss://" : "redis://", v6 ? "[" : "", host, v6 ? "]" : "", ":", static_cast<uint32_t>(port),
      "/", database);
}

StatusOr<RedisUrl> ParseRedisUrl(std::string_view option, std::string_view text) {
  const auto invalid = [&](const auto&... reason) {
    return absl::InvalidArgumentError(
        Concat(option, " ", reason..., "; write it as redis://host:6379/0, or rediss:// for TLS"));
  };
  const size_t colon = text.find("://");
  if (colon == std::string_view::npos) return invalid("has no scheme");
  const std::string scheme = AsciiLower(text.substr(0, colon));
  RedisUrl url;
  url.tls = scheme == "rediss" || scheme == "valkeys";
  if (!url.tls && scheme != "redis" && scheme != "valkey") return invalid("has another scheme");
  std::string_view rest = text.substr(colon + 3);

  const size_t slash = rest.find('/');
  if (slash != std::string_view::npos) {
    const std::string_view database = rest.substr(slash + 1);
    const std::optional<uint64_t> number = database.empty() ? 0 : ParseDecimal(database);
    if (!number || *number > RedisUrl::kMaxDatabase)
      return invalid("has a database that is no whole number between 0 and ", RedisUrl::kMaxDatabase);
    url.database = static_cast<uint32_t>(*number);
    rest = rest.substr(0, slash);
  }

  const size_t at = rest.rfind('@');
  if (at != std::string_view::npos) {
    const std::string_view login = rest.substr(0, at);
    rest.remove_prefix(at + 1);
    const size_t parted = login.find(':');
    std::optional<std::string> user = PercentDecoded(login.substr(0, parted), /*plus_is_space=*/false);
    std::optional<std::string> password =
        parted == std::string_view::npos ? std::string() : PercentDecoded(login.substr(parted + 1), false);
    if (!user || !password || login.find('@') != std::string_view::npos)
      return invalid("has a user or password with a '%' or '@' that is not percent-encoded");
    url.user = *std::move(user);
    url.password = *std::move(password);
  }

  std::string_view port;
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos || !IsAddressOfV6(rest.substr(1, end - 1)))
      return invalid("has an IPv6 address that is none");
    url.host = rest.substr(1, end - 1);
    port = rest.substr(end + 1);
  } else {
    url.host = rest.substr(0, rest.find(':'));
    port = rest.substr(url.host.size());
    if (!IsHost(url.host)) return invalid("has no host name or address");
  }
  if (port.empty()) return url;
  const std::optional<uint64_t> number = port.front() == ':' ? ParseDecimal(port.substr(1)) : std::nullopt;
  if (!number || *number == 0 || *number > UINT16_MAX)
    return invalid("has a port that is no whole number between 1 and 65535");
  url.port = static_cast<uint16_t>(*number);
  return url;
}

}  // namespace vllm_router
