#include "proxy/response_owners.h"

#include <string>

#include "base/text.h"
#include "proxy/fetch.h"
#include "proxy/hosts.h"
#include "proxy/lane.h"
#include "proxy/upstream_parts.h"
#include "routing/response_id.h"

namespace vllm_router {

std::string_view ResponseLookupName(ResponseLookup lookup) {
  switch (lookup) {
    case ResponseLookup::kKnown:
      return "known";
    case ResponseLookup::kFound:
      return "found";
    case ResponseLookup::kNotFound:
      return "not_found";
    case ResponseLookup::kBusy:
      return "busy";
  }
  return "";
}

Task<std::optional<WorkerId>> SearchResponse(
    Lane& lane, Errand& errand, const RequestHead& head, std::string_view id, const ClientSide& client) {
  const std::string target = Concat(kResponsePathPrefix, id);
  RequestHead question = head;
  question.method = "GET";
  question.target = question.path = target;
  question.query = {};
  question.framing = BodyFraming::kNone;
  question.websocket = false;

  const std::shared_ptr<const FleetView> fleet = lane.router->fleet();
  const std::vector<uint32_t> hosts = HostsOf(*fleet);
  Errand search(errand.via());
  errand.set_inner(&search);
  std::optional<WorkerId> owner;
  co_await ForEach(hosts.size(), kMaxFanOutAtOnce, [&](size_t i) -> Task<void> {
    const Worker& worker = fleet->worker(hosts[i]);
    std::string text;
    WriteUpstreamHead(question, PartsFor(lane, worker.url, client), &text);
    const StatusOr<Fetched> fetched =
        co_await Send(lane, &search, worker.url, std::move(text), {}, kResponseLookupMs, Part::kStatus);
    if (fetched.ok() && fetched->status / 100 == 2 && !owner) {
      owner = worker.id;
      search.Cancel();  // the others need not go on
    }
  });
  errand.set_inner(nullptr);
  co_return owner;
}

}  // namespace vllm_router
