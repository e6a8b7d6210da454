#include "proxy/exchange/redirect_fields.h"

#include <optional>
#include <string_view>
#include <utility>

#include "http/redirect.h"

namespace vllm_router {

RedirectFields::RedirectFields(
    const ResponseHead& response, const RequestHead& request, const WorkerUrl& worker,
    const ClientSide& client) {
  const CalledAs called = ReadCalledAs(request, client.tls, client.trust_forwarded);
  const RedirectEnds ends{
      .worker_authority = worker.authority,
      .worker_prefix = worker.prefix,
      .worker_tls = worker.tls,
      .client_host = client.preserve_host ? request.authority : std::string_view(),
      .scheme = called.scheme,
      .authority = called.authority};
  for (const std::string_view name : {"Location", "Content-Location"}) {
    const std::optional<std::string_view> value = FindHeader(response.fields, name);
    if (!value) continue;
    std::optional<std::string> ours = RouterLocation(*value, ends);
    if (!ours) continue;
    values_[size_] = *std::move(ours);
    fields_[size_] = {name, values_[size_]};
    ++size_;
  }
}

}  // namespace vllm_router
