#include "proxy/tracing/request_spans.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "base/time_units.h"
#include "hashing/hash.h"
#include "hashing/keyed_hash.h"
#include "policy/cache_prediction.h"
#include "proxy/api/routes.h"
#include "tracing/span_writer.h"

namespace vllm_router {
namespace {

constexpr uint64_t kConversations = 1;  // the domain of their names

// Names of spans and attributes must be few, and a method may be any token.
std::string_view MethodOf(const RequestInfo& info) {
  constexpr std::array<std::string_view, 9> kMethods = {"GET",     "POST",  "PUT",   "DELETE", "HEAD",
                                                        "OPTIONS", "PATCH", "TRACE", "CONNECT"};
  const auto found = std::ranges::find(kMethods, info.method);
  return found != kMethods.end() ? *found : "_OTHER";
}

// Empty: the path is one of those that share a label.
std::string_view RouteLabel(const RequestInfo& info) {
  const std::string_view label = RouteOf(info.route).label;
  return label.starts_with('/') ? label : std::string_view();
}

bool HasFailed(const RequestInfo& info) {
  const bool is_good_end = info.end == ExchangeEnd::kDone || info.end == ExchangeEnd::kNoDone ||
                           info.end == ExchangeEnd::kClientGone;
  return info.status >= 500 || !is_good_end;
}

// A client that leaves says nothing against the worker, nor does a response that is no longer needed.
bool HasFailed(const AttemptInfo& attempt) {
  const bool is_left =
      attempt.error == ExchangeEndName(ExchangeEnd::kClientGone) || attempt.error == "cancelled";
  return attempt.status >= 400 || (!attempt.error.empty() && !is_left);
}

// What an operation of the engine is called by the conventions for generative AI; empty: they have no name for it.
std::string_view OperationOf(Route route) {
  switch (route) {
    case Route::kChatCompletions:
    case Route::kMessages:
    case Route::kResponses:
      return "chat";
    case Route::kCompletions:
    case Route::kGenerate:
    case Route::kInferenceGenerate:
      return "text_completion";
    case Route::kEmbeddings:
    case Route::kV2Embed:
      return "embeddings";
    default:
      return {};
  }
}

class Spans {
 public:
  Spans(const RequestSpansSource& source, std::string* out)
      : source_(source), info_(source.info), trace_(*source.info.trace), out_(out) {}

  size_t Write() {
    WriteServer();
    uint32_t number = 0;
    for (const RequestTrace::Part& part : trace_.parts) WritePart(part, number++);
    for (const AttemptInfo& attempt : info_.attempts_made) WriteAttempt(attempt);
    return count_;
  }

 private:
  int64_t Unix(int64_t steady_ns) const { return info_.wall_us * 1000 + (steady_ns - info_.head_ns); }

  SpanHead HeadOf(SpanKind kind, std::string_view name, int64_t begin_ns, int64_t end_ns) {
    ++count_;
    return {
        .trace = trace_.trace,
        .parent = trace_.span,
        .state = trace_.state,
        .kind = kind,
        .name = name,
        .begin_ns = Unix(begin_ns),
        .end_ns = Unix(end_ns)};
  }

  void WriteServer() {
    const std::string_view method = MethodOf(info_);
    const std::string_view route = RouteLabel(info_);
    const std::string_view verb = method == "_OTHER" ? "HTTP" : method;
    const std::string name = route.empty() ? std::string(verb) : Concat(verb, " ", route);
    SpanHead head = HeadOf(SpanKind::kServer, name, info_.head_ns, info_.end_ns);
    head.span = trace_.span;
    head.parent = trace_.parent;
    head.parent_is_remote = trace_.parent != 0;
    SpanWriter span(out_, head);
    span.Text("http.request.method", method);
    span.Text("http.route", route);
    span.Text("url.path", info_.path);
    span.Text("url.scheme", trace_.tls ? "https" : "http");
    if (info_.status != 0) span.Count("http.response.status_code", info_.status);
    span.Text("client.address", source_.client);
    span.Text("network.protocol.version", trace_.minor_version == 0 ? "1.0" : "1.1");
    span.Text("request_id", source_.request_id);
    span.Real("latency_ms", Milliseconds(info_.end_ns - info_.head_ns));
    span.Text("error", info_.error);
    span.Text("vllm_router.end", ExchangeEndName(info_.end));
    span.Text("vllm_router.cache", info_.cache);
    if (info_.identity != nullptr) {
      span.Text("vllm_router.tenant", info_.identity->tenant);
      span.Text("vllm_router.class", info_.identity->priority_class);
    }
    if (info_.queue_ns != 0) span.Real("vllm_router.queue_ms", Milliseconds(info_.queue_ns));
    if (info_.decision) WriteDecision(span);
    if (info_.cached_tokens) Tokens(span, "vllm_router.reported_cached_tokens", *info_.cached_tokens);
    if (info_.prompt_tokens) Tokens(span, "vllm_router.prompt_tokens", *info_.prompt_tokens);
    if (HasFailed(info_)) {
      const std::string status = std::to_string(info_.status);
      span.Text(
          "error.type", !info_.error.empty()  ? info_.error
                        : info_.status >= 500 ? std::string_view(status)
                                              : ExchangeEndName(info_.end));
      span.Fail();
    }
    span.Finish();
  }

  void WriteDecision(SpanWriter& span) const {
    span.Text("vllm_router.policy", info_.policy.empty() ? source_.policy : info_.policy);
    span.Text("vllm_router.reason", ReasonName(info_.decision->reason));
    if (info_.decision->arm != Arm::kNone) span.Text("vllm_router.arm", ArmName(info_.decision->arm));
    span.Count("vllm_router.attempts", info_.attempts);
    if (const auto nanos = info_.decision_ns()) span.Count("vllm_router.decision_us", *nanos / 1000);
    const auto predicted = PredictionOf(*info_.decision, info_.prompt_tokens, source_.block_size);
    if (predicted) Tokens(span, "vllm_router.predicted_cached_tokens", predicted->cached);
  }

  void WritePart(const RequestTrace::Part& part, uint32_t number) {
    SpanHead head = HeadOf(SpanKind::kInternal, part.name, part.begin_ns, part.end_ns);
    head.span = trace_.PartSpan(number);
    SpanWriter(out_, head).Finish();
  }

  // Those of the same phase that were chosen before.
  uint32_t ResendsBefore(const AttemptInfo& attempt) const {
    return static_cast<uint32_t>(std::ranges::count_if(info_.attempts_made, [&attempt](const auto& other) {
      return other.phase == attempt.phase && other.chosen_ns < attempt.chosen_ns;
    }));
  }

  void WriteAttempt(const AttemptInfo& attempt) {
    const WorkerUrl& worker = attempt.worker->url;
    const std::string_view operation =
        source_.conversations != nullptr ? OperationOf(info_.route) : std::string_view();
    std::string name = "http_client_request";
    if (!operation.empty())
      name = info_.model.empty() ? std::string(operation) : Concat(operation, " ", info_.model);
    SpanHead head = HeadOf(SpanKind::kClient, name, attempt.chosen_ns, attempt.end_ns);
    // One that found no connection has told no worker its id.
    head.span = attempt.span_id != 0 ? attempt.span_id : trace_.AttemptSpan(trace_.attempts + unsent_++);
    SpanWriter span(out_, head);
    span.Text("http.request.method", MethodOf(info_));
    span.Text("url.full", Concat(worker.base, info_.path));
    span.Text("server.address", worker.host);
    span.Count("server.port", worker.port);
    if (const uint32_t resends = ResendsBefore(attempt); resends != 0)
      span.Count("http.request.resend_count", resends);
    if (attempt.status != 0) span.Count("http.response.status_code", attempt.status);
    span.Text("vllm.request_phase", AttemptPhaseName(attempt.phase));
    if (!operation.empty()) WriteGenAi(span, operation, attempt);
    if (attempt.first_body_ns != 0) span.Event("first_byte", Unix(attempt.first_body_ns));
    if (HasFailed(attempt)) {
      const std::string status = std::to_string(attempt.status);
      span.Text("error.type", attempt.error.empty() ? std::string_view(status) : attempt.error);
      span.Fail();
    }
    span.Finish();
  }

  void WriteGenAi(SpanWriter& span, std::string_view operation, const AttemptInfo& attempt) const {
    span.Text("gen_ai.operation.name", operation);
    span.Text("gen_ai.provider.name", "vllm");
    span.Text("gen_ai.request.model", info_.model);
    if (info_.stream) span.Switch("gen_ai.request.stream", true);
    if (info_.session != nullptr) {
      const uint64_t name = source_.conversations->NameOf(kConversations, Xxh3(info_.session->session));
      span.Text("gen_ai.conversation.id", Hex16(name));
    }
    if (attempt.first_body_ns != 0 && attempt.sent_ns != 0) {
      span.Real(
          "gen_ai.response.time_to_first_chunk",
          static_cast<double>(attempt.first_body_ns - attempt.sent_ns) / 1e9);
    }
    // What the client got is of the last attempt, and of the decode worker of two.
    const bool is_clients =
        &attempt == &info_.attempts_made.back() && attempt.phase != AttemptPhase::kPrefill;
    if (!is_clients) return;
    if (info_.prompt_tokens) Tokens(span, "gen_ai.usage.input_tokens", *info_.prompt_tokens);
    if (info_.completion_tokens) Tokens(span, "gen_ai.usage.output_tokens", *info_.completion_tokens);
    if (info_.cached_tokens) Tokens(span, "gen_ai.usage.cache_read.input_tokens", *info_.cached_tokens);
  }

  static double Milliseconds(int64_t nanos) { return static_cast<double>(nanos) / kNanosPerMs; }
  static void Tokens(SpanWriter& span, std::string_view key, uint64_t tokens) {
    span.Count(key, static_cast<int64_t>(tokens));
  }

  const RequestSpansSource& source_;
  const RequestInfo& info_;
  const RequestTrace& trace_;
  std::string* const out_;
  size_t count_ = 0;
  uint32_t unsent_ = 0;  // attempts that have no span id of their own
};

}  // namespace

size_t WriteRequestSpans(const RequestSpansSource& source, std::string* out) {
  return Spans(source, out).Write();
}

}  // namespace vllm_router
