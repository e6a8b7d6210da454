// Engines keep the responses that they made, and conversations, so a request that names one goes to the worker that has it.
#include <memory>
#include <string>
#include <utility>

#include "base/limits.h"
#include "base/text.h"
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
#include "routing/stored_path.h"
#include "worker/fleet_view.h"

namespace vllm_router {
namespace {

// With a single worker, all is that worker's anyway.
bool MayNameStored(const Request& request) {
  const Route route = request.info.route;
  const bool may = route == Route::kResponse || route == Route::kConversation ||
                   (MayContinueResponse(request) && request.head->framing != BodyFraming::kNone);
  return may && request.thread.fleet.Get()->members().size() > 1;
}

uint64_t StoredBytesNeeded(const Request& request) {
  return MayContinueResponse(request) && MayNameStored(request) ? kRoutedBodyBytes : 0;
}

bool MayFind(Request& request) { return MayNameStored(request); }

Task<Verdict> FindHolder(Request& request) {
  IoThread& thread = request.thread;
  std::string stored(StoredPathOf(request.head->path));
  const bool in_body = MayContinueResponse(request) && !request.stream_body;
  if (in_body) stored = ContinuedPath(request.body->held(), /*padded=*/true).value_or(std::string());
  if (stored.empty()) co_return Verdict::kNext;
  ResponseOwners& responses = thread.limits.responses;
  const auto count = [&responses](ResponseLookup lookup) {
    responses.lookups[static_cast<size_t>(lookup)].fetch_add(1, std::memory_order_relaxed);
  };
  const std::optional<WorkerId> known = responses.workers.Find(stored, thread.clock.NowNanos());
  if (known && thread.fleet.Get()->Find(*known)) {
    request.workers.holder = known;
    count(ResponseLookup::kKnown);
    co_return Verdict::kNext;
  }
  // A path may be that of another operation, which every worker has, and a conversation's name the client's own. Such a
  // request goes where its body belongs.
  const bool must_be_stored = (in_body && !IsConversation(stored)) || LooksStored(stored);
  if (!must_be_stored || !HasPlainId(stored)) co_return Verdict::kNext;
  Permit search(responses.searches, thread);
  if (!search.TryAcquire(1)) {
    count(ResponseLookup::kBusy);
    co_await request.client.Reject(HttpError::kResponseSearchBusy);
    co_return Verdict::kEnd;
  }
  request.workers.holder =
      co_await SearchStored(thread, request.scope, *request.head, stored, ClientSideOf(request));
  if (request.is_cancelled()) co_return Verdict::kNext;
  count(request.workers.holder ? ResponseLookup::kFound : ResponseLookup::kNotFound);
  if (request.workers.holder)
    responses.workers.Stick(stored, *request.workers.holder, thread.clock.NowNanos());
  co_return Verdict::kNext;
}

// Remembers which worker holds what it stored, by the id among the first things that it sends.
class StoredIdSink final : public BodySink {
 public:
  StoredIdSink(IoThread& thread, std::string_view collection, WorkerId worker, bool stream)
      : thread_(thread), collection_(collection), worker_(worker), stream_(stream) {}

  Took Write(std::string_view data, bool last) override {
    if (done_ || data.empty()) return Took::kAll;
    prefix_.Write(data, last);
    const std::optional<std::string> id = CreatedId(prefix_.bytes(), stream_);
    if (id) {
      thread_.limits.responses.workers.Stick(
          Concat(collection_, "/", *id), worker_, thread_.clock.NowNanos());
    }
    done_ = id || prefix_.full();
    return Took::kAll;
  }
  Task<Took> Flush() override { return prefix_.Flush(); }

 private:
  IoThread& thread_;
  const std::string_view collection_;
  const WorkerId worker_;
  const bool stream_;
  bool done_ = false;
  CapturedBody prefix_{kResponseIdBytes};
};

BodySink* Remember(Request& request, const ResponseHead& response) {
  const bool is_conversation = request.info.route == Route::kConversations;
  const bool stored = (request.info.route == Route::kResponses || is_conversation) &&
                      response.status / 100 == 2 && request.info.worker != nullptr &&
                      request.thread.fleet.Get()->members().size() > 1;
  if (!stored) return nullptr;
  return &request.state.Emplace<StoredIdSink>(
      request.thread, is_conversation ? kConversationsPath : kResponsesPath, request.info.worker->id,
      response.event_stream);
}

}  // namespace

extern constexpr Step kStoredResponseStep = {
    .name = "stored_response",
    .begin = &MayFind,
    .run = &FindHolder,
    .needs = &StoredBytesNeeded,
    .tap = &Remember};

}  // namespace vllm_router
