#include "proxy/exchange/upstream_parts.h"

#include "proxy/thread/io_thread.h"

namespace vllm_router {

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
      .request_id = client.request_id,
      .authorization = url.receives_api_key ? std::string_view(thread.bearer) : std::string_view(),
      .drop_authorization = client.drop_authorization,
  };
}

}  // namespace vllm_router
