// Engines keep the responses that they made, so a request that names one goes to the worker that has it.
#include <memory>
#include <string>
#include <utility>

#include "base/limits.h"
#include "proxy/exchange/body_sink.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/downstream.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/response_search.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "proxy/thread/permit.h"
#include "proxy/thread/response_owners.h"
#include "proxy/thread/server_limits.h"
#include "routing/response_id.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// With a single worker, the response is that worker's anyway.
bool MayNameResponse(const Request& request) {
  const bool may = request.info.route == Route::kResponse ||
                   (request.may_continue_response() && request.head->framing != BodyFraming::kNone);
  return may && request.thread.fleet.Get()->members().size() > 1;
}

uint64_t BytesNeeded(const Request& request) {
  return request.may_continue_response() && MayNameResponse(request) ? kRoutedBodyBytes : 0;
}

bool MayFind(Request& request) { return MayNameResponse(request); }

Task<Verdict> FindHolder(Request& request) {
  IoThread& thread = request.thread;
  std::string id(ResponseIdOfPath(request.head->path));
  if (request.may_continue_response() && !request.stream_body) {
    id = PreviousResponseId(request.body->held(), /*padded=*/true).value_or(std::string());
  }
  if (id.empty()) co_return Verdict::kNext;
  ResponseOwners& responses = thread.limits.responses;
  const auto count = [&responses](ResponseLookup lookup) {
    responses.lookups[static_cast<size_t>(lookup)].fetch_add(1, std::memory_order_relaxed);
  };
  const std::optional<WorkerId> known = responses.workers.Find(id, thread.clock.NowNanos());
  if (known && thread.fleet.Get()->Find(*known)) {
    request.holder = known;
    count(ResponseLookup::kKnown);
    co_return Verdict::kNext;
  }
  // Another operation below /v1/responses/, which every worker has: it goes where its body belongs.
  if (request.info.route == Route::kResponse && !LooksLikeResponseId(id)) co_return Verdict::kNext;
  if (!IsPlainId(id))
    co_return Verdict::kNext;  // no engine makes such an id, and it would be a part of a request line
  Permit search(responses.searches, thread);
  if (!search.TryAcquire(1)) {
    count(ResponseLookup::kBusy);
    co_await request.client.Reject(HttpError::kResponseSearchBusy);
    co_return Verdict::kEnd;
  }
  request.holder = co_await SearchResponse(thread, request.scope, *request.head, id, request.client_side());
  if (request.is_cancelled()) co_return Verdict::kNext;
  count(request.holder ? ResponseLookup::kFound : ResponseLookup::kNotFound);
  if (request.holder) responses.workers.Stick(id, *request.holder, thread.clock.NowNanos());
  co_return Verdict::kNext;
}

// Remembers which worker holds a stored response, by the id among the first things that its worker sends.
class ResponseIdSink final : public BodySink {
 public:
  ResponseIdSink(IoThread& thread, WorkerId worker, bool stream)
      : thread_(thread), worker_(worker), stream_(stream) {}

  Took Write(std::string_view data, bool last) override {
    if (done_ || data.empty()) return Took::kAll;
    prefix_.Write(data, last);
    const std::optional<std::string> id = ResponseIdOf(prefix_.bytes(), stream_);
    if (id) thread_.limits.responses.workers.Stick(*id, worker_, thread_.clock.NowNanos());
    done_ = id || prefix_.full();
    return Took::kAll;
  }
  Task<Took> Flush() override { return prefix_.Flush(); }

 private:
  IoThread& thread_;
  const WorkerId worker_;
  const bool stream_;
  bool done_ = false;
  CapturedBody prefix_{kResponseIdBytes};
};

BodySink* Remember(Request& request, const ResponseHead& response) {
  const bool stored = request.info.route == Route::kResponses && response.status / 100 == 2 &&
                      request.info.worker != nullptr && request.thread.fleet.Get()->members().size() > 1;
  if (!stored) return nullptr;
  return &request.state.Emplace<ResponseIdSink>(
      request.thread, request.info.worker->id, response.event_stream);
}

}  // namespace

extern constexpr Step kStoredResponseStep = {
    .name = "stored_response",
    .begin = &MayFind,
    .run = &FindHolder,
    .needs = &BytesNeeded,
    .tap = &Remember};

}  // namespace vllm_router
