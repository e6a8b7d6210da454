#include "proxy/exchange/response_search.h"

#include <string>

#include "base/limits.h"
#include "proxy/client/hosts.h"
#include "proxy/client/http_client.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "worker/fleet_view.h"

namespace vllm_router {

Task<std::optional<WorkerId>> SearchStored(
    IoThread& thread, CancelScope& scope, const RequestHead& head, std::string_view path,
    const ClientSide& client) {
  RequestHead call = head;
  call.method = "GET";
  call.target = call.path = path;
  call.query = {};
  call.framing = BodyFraming::kNone;
  call.websocket = false;

  const std::shared_ptr<const FleetView> fleet = thread.router->fleet();
  const std::vector<uint32_t> hosts = HostsOf(*fleet);
  CancelScope search(scope.via());
  OnCancel cancelled(scope, [&search] { search.Cancel(); });
  std::optional<WorkerId> owner;
  co_await ForEach(hosts.size(), kMaxFanOutAtOnce, [&](size_t i) -> Task<void> {
    const Worker& worker = fleet->worker(hosts[i]);
    std::string text;
    WriteUpstreamHead(call, PartsFor(thread, worker.url, client), &text);
    const StatusOr<HttpResponse> fetched = co_await thread.http.Send(
        &search, worker.url, std::move(text), {}, kResponseLookupMs, HttpClient::Part::kStatus);
    if (fetched.ok() && fetched->status / 100 == 2 && !owner) {
      owner = worker.id;
      search.Cancel();  // the others can stop
    }
  });
  co_return owner;
}

}  // namespace vllm_router
