#include "proxy/steps/key.h"

#include <memory>
#include <optional>
#include <utility>

#include "base/limits.h"
#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "routing/router.h"
#include "routing/truncated_json.h"

namespace vllm_router {
namespace {

bool NeedsBody(const Request& request) {
  return request.thread.router->NeedsBody(request.head->fields) || IsRecorded(request);
}

uint64_t KeyBytesNeeded(const Request& request) { return NeedsBody(request) ? kRoutedBodyBytes : 0; }

bool BeginKey(Request& request) {
  MakeKey(request);
  return false;
}

}  // namespace

void MakeKey(Request& request) {
  const RequestHead& head = *request.head;
  RequestBody& body = *request.body;
  RequestView view{.headers = head.fields, .path = head.path};
  view.body_bytes = head.framing == BodyFraming::kLength ? head.content_length : body.bytes();
  if (!request.stream_body && head.framing != BodyFraming::kNone) {
    view.body = body.held();
    view.body_is_padded = true;
  }
  view.cost_override = request.state.Find<CostOverride>();
  if (request.settings.decision_headers) request.key.explanation = std::make_shared<Explanation>();
  std::optional<TruncatedJson> prefix;
  if ((request.stream_body || body.bytes() > kRoutedBodyBytes) && NeedsBody(request)) {
    // A body too long to be held is routed by its prefix, as if that were all.
    prefix.emplace(body.held_bytes().first(kRoutedBodyBytes));
    view.body = prefix->view();
    view.body_is_padded = true;
  }
  request.thread.router->MakeKey(view, &request.key);
  if (!request.key.model.empty()) request.info.model = std::move(request.key.model);
  if (IsRecorded(request)) KeepPrompt(request, view);
}

extern constexpr Step kKeyStep = {.name = "key", .begin = &BeginKey, .needs = &KeyBytesNeeded};

}  // namespace vllm_router
