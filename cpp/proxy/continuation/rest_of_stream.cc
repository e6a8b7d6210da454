#include "proxy/continuation/rest_of_stream.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "base/text.h"
#include "base/time_units.h"
#include "continuation/settle.h"
#include "proxy/api/settings.h"
#include "proxy/client/http_client.h"
#include "proxy/continuation/thread_continuation.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/upstream_parts.h"
#include "proxy/exchange/worker_choice.h"
#include "proxy/thread/io_thread.h"
#include "routing/body_map.h"

namespace vllm_router {
namespace {

constexpr int64_t kCallMs = 1'000;
constexpr int64_t kLongestSettlingNs = 3 * kNanosPerSecond;
constexpr size_t kMostTextBytes = size_t{64} << 10;
constexpr size_t kMostAsked = 2;  // workers, for one text

bool GrowFor(void* memory, uint64_t bytes) { return static_cast<ContinueMemory*>(memory)->Grow(bytes); }

bool HasTrue(const BodyMap& map, std::string_view name) {
  const BodyMap::Member* const member = map.Find(name);
  return member != nullptr && member->type == BodyMap::Type::kTrue;
}

}  // namespace

RestOfStream::RestOfStream(Request& request, ContinueMemory& memory, const TokenRequest& asked, bool keeps)
    : request_(request),
      memory_(memory),
      asked_(asked),
      tokens_(
          {.hides = asked.hides,
           .is_chat = asked.api == ContinueApi::kChat,
           .most_ids = keeps ? request.settings.continuation.max_tokens : 0,
           .room = {.grow = &GrowFor, .context = &memory}}) {}

RestOfStream::~RestOfStream() { memory_.Shrink(tokens_.bytes() + body_bytes_); }

// At temperature 0 the same tokens come again, so that letters may be swallowed.
bool RestOfStream::IsGreedy() const {
  return asked_.eligibility.WhyNot(ContinueMethod::kRerun, ContinuePhase::kText) == ContinueReason::kNone;
}

bool RestOfStream::is_long() const {
  return tokens_.output().count() > request_.settings.continuation.rerun_tokens;
}

Task<bool> RestOfStream::Settle(const DeliveredText& delivered) {
  lacks_end_only_ = false;
  if (!tokens_.known() || delivered.choices().size() > 1) co_return false;
  const ContinuePhase phase = delivered.phase();
  if (asked_.eligibility.WhyNot(ContinueMethod::kTokens, phase) != ContinueReason::kNone) co_return false;
  if (delivered.AllEnded(1)) {
    lacks_end_only_ = true;
    co_return true;
  }
  SettleSearch search(tokens_, IsGreedy());
  const int64_t until_ns = request_.thread.clock.NowNanos() + kLongestSettlingNs;
  while (search.IsOpen()) {
    if (request_.thread.clock.NowNanos() >= until_ns) co_return false;
    const std::optional<std::string> text = co_await TextOf(search.Ids());
    if (request_.is_cancelled()) co_return false;
    if (!text) {
      const bool has_tools =
          asked_.eligibility.WhyNot(ContinueMethod::kParsedTokens, ContinuePhase::kToolCall) ==
          ContinueReason::kNone;
      if (phase == ContinuePhase::kText && !has_tools) search.AssumeNoParser();
      break;
    }
    search.Take(*text);
  }
  if (!search.found()) co_return false;
  ids_ = search.ids();
  repeated_ = search.swallowed();
  co_return MakeBody();
}

// False: the request's limits cannot be read, or there is no memory.
bool RestOfStream::MakeBody() {
  IdLog kept = tokens_.output();
  kept.Truncate(ids_);
  body_.emplace(asked_.api, ClientsBody(), tokens_.prompt(), kept);
  lacks_end_only_ = body_->state() == ContinuedBody::State::kNothingLeft && repeated_.empty();
  if (lacks_end_only_) return true;
  const bool has_body = body_->state() == ContinuedBody::State::kReady;
  const uint64_t bytes = has_body ? body_->bytes() : 0;
  if (bytes > body_bytes_) {
    if (!memory_.Grow(bytes - body_bytes_)) return false;
    body_bytes_ = bytes;
  }
  return has_body;
}

const SplicedBody* RestOfStream::Body() { return &body_->body(); }

// As workers get it, with what was inserted.
std::string RestOfStream::ClientsBody() const {
  const SplicedBody* const copy = request_.edits.copy();
  return copy != nullptr ? copy->Joined() : std::string(request_.body->held());
}

// Of the last ids. nullopt: no other worker said it.
Task<std::optional<std::string>> RestOfStream::TextOf(std::string ids) {
  IoThread& thread = request_.thread;
  const std::string model = asked_.model.empty() ? std::string() : Concat(R"("model":)", asked_.model, ",");
  const std::string json = Concat("{", model, R"("tokens":[)", ids, "]}");
  const std::string credentials = ForwardedCredentials(*request_.head, ClientSideOf(request_));
  const auto fleet = FleetFor(thread, request_.workers.model.get(), request_.workers.first_stage());
  std::vector<uint32_t> positions(fleet->eligible().begin(), fleet->eligible().end());
  std::erase_if(positions, [this, &fleet](uint32_t position) {
    return fleet->worker(position).id == request_.info.worker->id;
  });
  for (size_t asked = 0; asked < kMostAsked && !positions.empty(); ++asked) {
    const auto chosen = positions.begin() + static_cast<ptrdiff_t>(thread.ids.Below(positions.size()));
    const WorkerUrl url = fleet->worker(*chosen).url;
    positions.erase(chosen);
    const StatusOr<HttpResponse> response = co_await thread.http.PostWith(
        credentials, &request_.scope, url, "/detokenize", json, kCallMs, kMostTextBytes);
    if (request_.is_cancelled()) co_return std::nullopt;
    if (!IsSuccess(response)) continue;
    const BodyMap map = BodyMap::Read(response->body);
    const BodyMap::Member* const text = map.Find("prompt");
    if (text == nullptr) continue;
    if (std::optional<std::string> said = text->Text()) co_return said;
  }
  co_return std::nullopt;
}

std::string RestOfStream::End(const DeliveredText& delivered) const {
  const bool is_chat = asked_.api == ContinueApi::kChat;
  const auto event = [&](std::string_view choices, std::string_view usage) {
    const auto value = [](std::string_view spelled) {
      return spelled.empty() ? std::string_view("null") : spelled;
    };
    return Concat(
        R"(data: {"id":)", value(delivered.id()), R"(,"object":")",
        is_chat ? "chat.completion.chunk" : "text_completion", R"(","created":)", value(delivered.created()),
        R"(,"model":)", value(delivered.model()), R"(,"choices":[)", choices, "]", usage, "}\n\n");
  };
  std::string end;
  if (!delivered.AllEnded(1)) {
    end += event(
        Concat(
            R"({"index":0,)", is_chat ? R"("delta":{})" : R"("text":"")",
            R"(,"logprobs":null,"finish_reason":"length","stop_reason":null})"),
        "");
  }
  const std::string body = ClientsBody();
  const BodyMap map = BodyMap::Read(body);
  const BodyMap::Member* const options = map.Find("stream_options");
  const bool has_usage = options != nullptr && HasTrue(BodyMap::Read(options->value), "include_usage");
  if (has_usage && delivered.events_without_choice() == 0) {
    const uint64_t prompt = tokens_.prompt().count();
    const uint64_t output = tokens_.output().count();
    end += event(
        "", Concat(
                R"(,"usage":{"prompt_tokens":)", prompt, R"(,"total_tokens":)", prompt + output,
                R"(,"completion_tokens":)", output, "}"));
  }
  return end + "data: [DONE]\n\n";
}

}  // namespace vllm_router
