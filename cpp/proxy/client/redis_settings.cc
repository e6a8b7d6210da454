#include "proxy/client/redis_settings.h"

#include <utility>

#include "base/clock.h"
#include "base/text.h"
#include "net/tls.h"

namespace vllm_router {

StatusOr<std::unique_ptr<RedisPool>> OpenRedisPool(const RedisSettings& settings, RedisOptions rest) {
  static const SteadyClock clock;
  StatusOr<RedisUrl> url = ParseRedisUrl(settings.url_option, settings.url);
  if (!url.ok()) return url.status();
  if (!settings.password_file.empty()) {
    const StatusOr<std::string> password = ReadRedisPassword(settings.password_file);
    if (!password.ok()) {
      return absl::FailedPreconditionError(
          Concat(settings.others_option, "_password_file", std::string(password.status().message())));
    }
  } else if (!url->user.empty() && url->password.empty()) {
    return absl::InvalidArgumentError(Concat(
        settings.url_option, " has a user and no password; set ", settings.others_option,
        "_password_file, or remove the user"));
  }
  const std::string& unused = settings.ca_file.empty() ? settings.cert_path : settings.ca_file;
  if (!url->tls && !unused.empty()) {
    return absl::InvalidArgumentError(Concat(
        settings.others_option, settings.ca_file.empty() ? "_cert_path is " : "_ca_file is ", Quoted(unused),
        ", and the connection has no TLS; write the URL as rediss://, or remove it"));
  }
  std::shared_ptr<const TlsContext> tls;
  if (url->tls) {
    StatusOr<std::shared_ptr<const TlsContext>> made = TlsContext::Make(TlsContext::ForWorkers{
        .ca_path = settings.ca_file, .cert_path = settings.cert_path, .key_path = settings.key_path});
    if (!made.ok()) {
      return absl::FailedPreconditionError(Concat(
          settings.others_option,
          settings.cert_path.empty() ? "_ca_file: " : "_ca_file, _cert_path or _key_path: ",
          std::string(made.status().message())));
    }
    tls = *std::move(made);
  }
  rest.url = *std::move(url);
  rest.password_file = settings.password_file;
  return std::make_unique<RedisPool>(std::move(rest), std::move(tls), clock);
}

}  // namespace vllm_router
