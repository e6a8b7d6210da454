// SpanWriter: one span of OpenTelemetry as bytes, field by field, without a tree of attributes in between.
//
//   std::string spans;                              // a message ScopeSpans grows here, span after span
//   SpanWriter span(&spans, {.trace = id, .span = 7, .kind = SpanKind::kServer, .name = "POST /v1/completions", …});
//   span.Text("http.route", "/v1/completions");
//   span.Count("http.response.status_code", 200);
//   span.Finish();
//
// A value is cut after 256 bytes, at the end of a character, and what is no UTF-8 in it becomes U+FFFD: a collector rejects
// all spans of a request for one that is not. Attributes that would make a span longer than kMaxSpanBytes are left out and
// counted. One thread.
// The format: opentelemetry-proto 1.x, trace/v1/trace.proto and collector/trace/v1/trace_service.proto.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/proto_wire.h"
#include "tracing/trace_context.h"

namespace vllm_router {

inline constexpr size_t kMaxSpanBytes = 2048;
inline constexpr size_t kMaxSpanValueBytes = 256;

enum class SpanKind : uint8_t { kInternal = 1, kServer = 2, kClient = 3 };

// Times are nanoseconds of the calendar, since 1970.
struct SpanHead {
  TraceId trace;
  uint64_t span = 0;
  uint64_t parent = 0;            // 0: it has none
  bool parent_is_remote = false;  // in another process
  bool sampled = true;
  std::string_view state = {};  // the tracestate
  SpanKind kind = SpanKind::kInternal;
  std::string_view name;
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

class SpanWriter {
 public:
  SpanWriter(std::string* spans, const SpanHead& head);
  SpanWriter(const SpanWriter&) = delete;
  SpanWriter& operator=(const SpanWriter&) = delete;

  // Attributes; an empty text is none.
  void Text(std::string_view key, std::string_view value);
  void Count(std::string_view key, int64_t value);
  void Real(std::string_view key, double value);
  void Switch(std::string_view key, bool value);

  void Event(std::string_view name, int64_t time_ns);
  // Its status becomes ERROR.
  void Fail() { failed_ = true; }
  // REQUIRES: it is the last call.
  void Finish();

 private:
  bool Fits(size_t bytes) const;
  bool HasRoom(size_t bytes);  // for an attribute, which is counted if not

  ProtoWriter out_;
  const size_t begun_;
  bool failed_ = false;
  uint32_t dropped_ = 0;
};

// A request to a collector is this, and then the fields that SpanWriters appended, of so many bytes: they need no copy. The
// first attribute of the resource with a name counts.
std::string BeginExport(
    const std::vector<std::pair<std::string, std::string>>& resource, std::string_view scope,
    std::string_view scope_version, size_t span_bytes);

// What a collector says of spans that it did not take, in the body of a 200.
struct PartialSuccess {
  uint64_t rejected = 0;
  std::string message;  // UTF-8 or not
};
// Nullopt for a body that is no ExportTraceServiceResponse.
std::optional<PartialSuccess> ParseExportResponse(std::string_view body);

}  // namespace vllm_router
