// Tracing: spans of requests for a collector of OpenTelemetry (--enable-trace).
//
//   trace_step          reads the client's trace context; at the end, request_spans writes the spans of a request
//   ThreadTracer        what a thread keeps for it
//   TraceExporter       takes spans from the threads and sends them
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kTracingFeature;
extern const Step kTraceStep;

}  // namespace vllm_router
