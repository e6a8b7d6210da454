#include "proxy/exchange/upstream_parts.h"

#include <algorithm>

#include "base/text.h"
#include "http/head.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {

std::string_view ForwardedAuthorization(const RequestHead& head, const ClientSide& client) {
  static constexpr std::string_view kName = "authorization";
  const auto is_named = [](std::string_view token) { return EqualsIgnoreCase(token, kName); };
  if (client.drop_authorization || std::ranges::any_of(head.connection_tokens, is_named)) return {};
  const std::string_view value = FindHeader(head.fields, kName).value_or("");
  return value.size() <= kMaxKeptAuthorization ? value : std::string_view();
}

std::string ForwardedCredentials(const RequestHead& head, const ClientSide& client) {
  std::string lines;
  if (client.drop_authorization) return lines;
  for (const std::string_view name : {"authorization", "x-api-key", "api-key"}) {
    const auto is_named = [name](std::string_view token) { return EqualsIgnoreCase(token, name); };
    const std::string_view value = FindHeader(head.fields, name).value_or("");
    if (value.empty() || value.size() > kMaxKeptAuthorization) continue;
    if (std::ranges::any_of(head.connection_tokens, is_named)) continue;
    lines += Concat(name, ": ", value, "\r\n");
  }
  return lines;
}

UpstreamHeadParts PartsFor(const IoThread& thread, const WorkerUrl& url, const ClientSide& client) {
  return {
      .prefix = url.prefix,
      .authority = url.authority,
      .preserve_host = client.preserve_host,
      .hop_name = thread.hop_name,
      .client_address = client.address,
      .forwarded_proto = client.tls ? "https" : "http",
      .trust_forwarded = client.trust_forwarded,
      .request_id_name = client.request_id_name,
      .hide_ids = client.hide_ids,
      .id_names = client.id_names,
      .request_id = client.request_id,
      .drop_rank = client.hide_ids,
      .identity = client.identity,
      .traceparent =
          client.trace != nullptr ? client.trace->HeaderOf(client.trace->span) : std::string_view(),
      .drop_tracestate = client.trace != nullptr && !client.trace->keeps_state,
      .authorization = url.receives_api_key ? std::string_view(thread.bearer) : std::string_view(),
      .drop_authorization = client.drop_authorization,
  };
}

}  // namespace vllm_router
