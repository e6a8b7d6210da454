// Which trace a request belongs to, from its head. At its end its spans are written.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/text.h"
#include "http/head.h"
#include "net/socket.h"
#include "proxy/exchange/connection.h"
#include "proxy/exchange/request.h"
#include "proxy/exchange/step.h"
#include "proxy/thread/io_thread.h"
#include "proxy/tracing/request_spans.h"
#include "proxy/tracing/thread_tracer.h"
#include "proxy/tracing/tracing_feature.h"
#include "routing/router.h"

namespace vllm_router {
namespace {

struct Context {
  std::optional<Traceparent> parent;
  bool is_invalid = false;  // it has one that is none
  std::string state;        // fields of one name are one list
};

Context ReadContext(const RequestHead& head) {
  Context context;
  int parents = 0;
  for (const HeaderField& field : head.fields) {
    if (EqualsIgnoreCase(field.name, "traceparent")) {
      ++parents;
      context.parent = ParseTraceparent(field.value);
    } else if (EqualsIgnoreCase(field.name, "tracestate")) {
      if (!context.state.empty()) context.state += ',';
      context.state += field.value;
    }
  }
  if (parents > 1) context.parent.reset();
  context.is_invalid = parents != 0 && !context.parent;
  return context;
}

bool BeginTrace(Request& request) {
  auto* const tracer = request.thread.features.Find<ThreadTracer>();
  if (tracer == nullptr) return false;
  const RequestHead& head = *request.head;
  if (std::ranges::find(tracer->excluded, head.path) != tracer->excluded.end()) return false;
  Context context = ReadContext(head);
  if (context.is_invalid) tracer->invalid_contexts.Add();
  auto trace = std::make_unique<RequestTrace>(StartTrace(context.parent, tracer->sampler, tracer->ids));
  trace->keeps_state = context.parent && context.state.size() <= kMaxTracestateBytes;
  if (trace->sampled && trace->keeps_state) trace->state = std::move(context.state);
  trace->tls = request.connection.socket.is_tls();
  trace->minor_version = head.minor_version;
  request.info.trace = std::move(trace);
  return false;
}

void EndTrace(Request& request) {
  const RequestTrace* const trace = request.info.trace.get();
  if (trace == nullptr) return;
  ThreadTracer& tracer = *request.thread.features.Find<ThreadTracer>();
  if (!trace->sampled) {
    tracer.sampled_out.Add();
    return;
  }
  tracer.bytes.clear();
  const size_t count = WriteRequestSpans(
      {.info = request.info,
       .request_id = request.id.id,
       .client = request.connection.peer.address,
       .policy = request.thread.router->policy().name(),
       .block_size = request.thread.router->options().policy.block_size,
       .conversations = tracer.conversations ? &*tracer.conversations : nullptr},
      &tracer.bytes);
  const size_t held = tracer.spans.Add(tracer.bytes, count);
  if (held == 0) tracer.dropped.Add(count);
  const bool is_enough = held >= ThreadTracer::kEnoughSpans && held - count < ThreadTracer::kEnoughSpans;
  if (is_enough && tracer.export_soon) tracer.export_soon();
}

}  // namespace

extern constexpr Step kTraceStep = {.name = "trace", .begin = &BeginTrace, .on_end = &EndTrace};

}  // namespace vllm_router
