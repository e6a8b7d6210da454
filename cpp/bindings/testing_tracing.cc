// tracing/ and what it writes with, for their tests: messages of Protocol Buffers given as lists, trace contexts, spans.
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "base/proto_wire.h"
#include "base/random.h"
#include "base/utf8.h"
#include "bindings/bindings.h"
#include "tracing/otlp_settings.h"
#include "tracing/span_buffer.h"
#include "tracing/span_writer.h"
#include "tracing/trace_context.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

// Fields as (kind, number, value); the value of a "message" is a list of its fields.
void WriteFields(const py::list& fields, ProtoWriter* out) {
  for (const py::handle& each : fields) {
    const auto [kind, number, value] = each.cast<std::tuple<std::string, uint32_t, py::object>>();
    if (kind == "varint") {
      out->Varint(number, value.cast<uint64_t>());
    } else if (kind == "fixed32") {
      out->Fixed32(number, value.cast<uint32_t>());
    } else if (kind == "fixed64") {
      out->Fixed64(number, value.cast<uint64_t>());
    } else if (kind == "double") {
      out->Double(number, value.cast<double>());
    } else if (kind == "text") {
      out->Text(number, value.cast<std::string>());
    } else {
      const size_t begun = out->Begin(number);
      WriteFields(value.cast<py::list>(), out);
      out->End(begun);
    }
  }
}

using TraceTuple = std::tuple<uint64_t, uint64_t, uint64_t, bool>;  // high, low, span, sampled

Traceparent ParentOf(const TraceTuple& parts) {
  const auto& [high, low, span, sampled] = parts;
  return {.trace = {.high = high, .low = low}, .span = span, .sampled = sampled};
}

py::bytes WriteSpan(
    const TraceTuple& trace, uint64_t parent, bool remote, const std::string& state, int kind,
    const std::string& name, int64_t begin_ns, int64_t end_ns, const py::list& attributes,
    const std::vector<std::pair<std::string, int64_t>>& events, bool failed) {
  const Traceparent ids = ParentOf(trace);
  std::string bytes;
  SpanWriter span(
      &bytes, {.trace = ids.trace,
               .span = ids.span,
               .parent = parent,
               .parent_is_remote = remote,
               .sampled = ids.sampled,
               .state = state,
               .kind = static_cast<SpanKind>(kind),
               .name = name,
               .begin_ns = begin_ns,
               .end_ns = end_ns});
  for (const py::handle& each : attributes) {
    const auto [key, value] = each.cast<std::pair<std::string, py::object>>();
    if (py::isinstance<py::bool_>(value)) {
      span.Switch(key, value.cast<bool>());
    } else if (py::isinstance<py::int_>(value)) {
      span.Count(key, value.cast<int64_t>());
    } else if (py::isinstance<py::float_>(value)) {
      span.Real(key, value.cast<double>());
    } else {
      span.Text(key, value.cast<std::string>());
    }
  }
  for (const auto& [event, time_ns] : events) span.Event(event, time_ns);
  if (failed) span.Fail();
  span.Finish();
  return bytes;
}

}  // namespace

void BindTestingTracing(py::module_& testing) {
  testing.def("proto_write", [](const py::list& fields) {
    std::string bytes;
    ProtoWriter out(&bytes);
    WriteFields(fields, &out);
    out.Close();
    return py::bytes(bytes);
  });
  testing.def("proto_read", [](std::string_view bytes) {
    py::list fields;
    ProtoReader in(bytes);
    while (const std::optional<ProtoReader::Field> field = in.Next()) {
      const bool is_bytes = field->type == WireType::kBytes;
      fields.append(py::make_tuple(
          field->number, static_cast<int>(field->type),
          is_bytes ? py::object(py::bytes(std::string(field->bytes))) : py::object(py::int_(field->value))));
    }
    return py::make_tuple(fields, in.ok());
  });
  testing.def("valid_utf8", [](std::string_view text) {
    std::string out;
    out.resize(kMaxUtf8Growth * text.size());
    out.resize(static_cast<size_t>(CopyValidUtf8(text, out.data()) - out.data()));
    return py::bytes(out);
  });

  testing.def("parse_traceparent", [](std::string_view text) -> std::optional<TraceTuple> {
    const std::optional<Traceparent> parent = ParseTraceparent(text);
    if (!parent) return std::nullopt;
    return TraceTuple{parent->trace.high, parent->trace.low, parent->span, parent->sampled};
  });
  testing.def("write_traceparent", [](const TraceTuple& parts) {
    const TraceparentText text = WriteTraceparent(ParentOf(parts));
    return std::string(text.begin(), text.end());
  });
  testing.def("sampled_of", [](double ratio, const std::vector<uint64_t>& lows) {
    const TraceSampler sampler(ratio);
    size_t sampled = 0;
    for (const uint64_t low : lows) sampled += sampler.Samples({.low = low}) ? 1 : 0;
    return sampled;
  });
  testing.def("start_trace", [](const std::optional<TraceTuple>& parent, double ratio, uint64_t seed) {
    Random random(seed);
    const std::optional<Traceparent> given = parent ? std::optional(ParentOf(*parent)) : std::nullopt;
    const RequestTrace trace = StartTrace(given, TraceSampler(ratio), random);
    return py::dict(
        py::arg("trace") = std::pair(trace.trace.high, trace.trace.low), py::arg("span") = trace.span,
        py::arg("parent") = trace.parent, py::arg("sampled") = trace.sampled);
  });
  testing.def("spans_below", [](uint64_t span, uint32_t count) {
    const RequestTrace trace{.span = span};
    std::vector<uint64_t> spans;
    for (uint32_t i = 0; i < count; ++i) {
      spans.push_back(trace.AttemptSpan(i));
      spans.push_back(trace.PartSpan(i));
    }
    return spans;
  });

  testing.def(
      "write_span", &WriteSpan, py::arg("trace") = TraceTuple{1, 2, 3, true}, py::arg("parent") = 0,
      py::arg("remote") = false, py::arg("state") = "", py::arg("kind") = 1, py::arg("name") = "",
      py::arg("begin_ns") = 0, py::arg("end_ns") = 0, py::arg("attributes") = py::list(),
      py::arg("events") = std::vector<std::pair<std::string, int64_t>>(), py::arg("failed") = false);
  testing.def(
      "export_request", [](const std::vector<std::pair<std::string, std::string>>& resource,
                           const std::string& scope, const std::string& version, std::string_view spans) {
        return py::bytes(BeginExport(resource, scope, version, spans.size()).append(spans));
      });
  testing.def(
      "parse_export_response", [](std::string_view body) -> std::optional<std::pair<uint64_t, py::bytes>> {
        const std::optional<PartialSuccess> partial = ParseExportResponse(body);
        if (!partial) return std::nullopt;
        return std::pair(partial->rejected, py::bytes(partial->message));
      });
  testing.attr("MAX_SPAN_BYTES") = kMaxSpanBytes;
  testing.attr("MAX_SPAN_VALUE_BYTES") = kMaxSpanValueBytes;

  py::class_<SpanBuffer>(testing, "SpanBuffer")
      .def(py::init<>())
      .def_readonly_static("MAX_SPANS", &SpanBuffer::kMaxSpans)
      .def_readonly_static("MAX_BYTES", &SpanBuffer::kMaxBytes)
      .def(
          "add", &SpanBuffer::Add, py::arg("bytes"), py::arg("spans"),
          py::call_guard<py::gil_scoped_release>())
      .def("take", [](SpanBuffer& self) {
        const SpanBuffer::Taken taken = [&self] {
          const py::gil_scoped_release unlocked;
          return self.Take();
        }();
        return py::make_tuple(py::bytes(taken.bytes), taken.spans);
      });

  testing.def(
      "otlp_settings",
      [](const std::string& endpoint, const std::string& service_name,
         const std::map<std::string, std::string, std::less<>>& environment) {
        const StatusOr<OtlpSettings> settings =
            ReadOtlpSettings(endpoint, service_name, [&environment](std::string_view name) {
              const auto found = environment.find(name);
              return found != environment.end() ? found->second : std::string();
            });
        if (!settings.ok()) throw py::value_error(std::string(settings.status().message()));
        const WorkerUrl& url = settings->url;
        return py::dict(
            py::arg("url") = (url.tls ? "https://" : "http://") + url.authority + url.prefix,
            py::arg("port") = url.port, py::arg("headers") = settings->headers,
            py::arg("resource") = settings->resource, py::arg("genai") = settings->genai);
      },
      py::arg("endpoint") = "", py::arg("service_name") = "",
      py::arg("environment") = std::map<std::string, std::string, std::less<>>());
  testing.def("process_environment", &ProcessEnvironment);
}

}  // namespace vllm_router
