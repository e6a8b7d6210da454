// Requests to Anthropic's API get a marker, or lose a block, if the operator wants that. On top of what is removed, and
// behind the key, which is that of the client's body. All attempts send the same pieces.
#include <optional>
#include <utility>
#include <vector>

#include "proxy/api/settings.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"
#include "routing/billing_header.h"
#include "routing/cache_control.h"

namespace vllm_router {
namespace {

bool MayEdit(const Request& request) {
  const Settings& settings = request.settings;
  const bool marks = settings.anthropic_cache_control_injection && request.info.route == Route::kMessages;
  const bool strips = settings.strip_anthropic_billing_header && IsAnthropic(request.info.route);
  return (marks || strips) && request.head->method == "POST" && request.head->framing != BodyFraming::kNone;
}

uint64_t MessageBytesNeeded(const Request& request) {
  return MayEdit(request) ? request.settings.max_payload_size : 0;
}

bool EditMessage(Request& request) {
  if (!MayEdit(request)) return false;
  std::optional<BodyMap> own;
  const BodyMap* const known = request.edits.members();
  if (known == nullptr) own = BodyMap::Read(request.body->held());
  const BodyMap& body = known != nullptr ? *known : *own;
  std::vector<BodyInsertion> edits;
  if (request.settings.strip_anthropic_billing_header) edits = BillingHeaderEdits(body);
  if (request.settings.anthropic_cache_control_injection && request.info.route == Route::kMessages) {
    const CacheControlEdit marker = CacheControlEdit::Of(body);
    request.thread.telemetry.CacheControl(CacheControlResultName(marker.result()));
    edits.insert(edits.end(), marker.insertions().begin(), marker.insertions().end());
  }
  request.edits.Insert(std::move(edits));
  const bool has_copies = request.workers.stages == EligibleWorkers::Stages::kBoth;  // each stage its own
  if (!has_copies) request.edits.MakeCopy(request.body->held());
  return false;
}

}  // namespace

extern constexpr Step kMessageStep = {.name = "message", .begin = &EditMessage, .needs = &MessageBytesNeeded};

}  // namespace vllm_router
