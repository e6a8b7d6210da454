// picker/ for its tests: messages of ext_proc, and subsets of endpoints.
#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "picker/endpoint_subset.h"
#include "picker/ext_proc.h"
#include "picker/ext_proc_stream.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

using BytesPair = std::pair<std::string, std::string>;

std::string StatusText(const Status& status) {
  return status.ok() ? std::string()
                     : absl::StatusCodeToString(status.code()) + ": " + std::string(status.message());
}

constexpr std::array<std::string_view, 7> kPartNames = {
    "none",          "request_headers",  "response_headers", "request_body",
    "response_body", "request_trailers", "response_trailers"};

ProcessingPart PartOf(const std::string& name) {
  for (size_t i = 0; i < kPartNames.size(); ++i) {
    if (kPartNames[i] == name) return static_cast<ProcessingPart>(i);
  }
  throw py::value_error("there is no such part");
}

py::list PlainStructs(const std::vector<NamedStruct>& structs) {
  py::list list;
  for (const NamedStruct& each : structs)
    list.append(py::make_tuple(py::bytes(std::string(each.name)), py::bytes(std::string(each.bytes))));
  return list;
}

// The message and what is wrong with it; `request` is reused, as at a server.
py::tuple ReadRequest(const std::string& message) {
  using namespace py::literals;
  static ProcessingRequest request;
  const Status status = ReadProcessingRequest(message, &request);
  if (!status.ok()) return py::make_tuple(py::none(), StatusText(status));
  py::list fields;
  for (const HeaderField& field : request.fields)
    fields.append(py::make_tuple(py::bytes(std::string(field.name)), py::bytes(std::string(field.value))));
  py::object protocol = py::none();
  if (request.protocol) {
    protocol = py::make_tuple(
        static_cast<int>(request.protocol->request_body), static_cast<int>(request.protocol->response_body),
        request.protocol->sends_body_early);
  }
  return py::make_tuple(
      py::dict(
          "part"_a = std::string(kPartNames[static_cast<size_t>(request.part)]), "fields"_a = fields,
          "body"_a = py::bytes(std::string(request.body)), "end_of_stream"_a = request.end_of_stream,
          "metadata"_a = PlainStructs(request.metadata), "attributes"_a = PlainStructs(request.attributes),
          "observability_mode"_a = request.observability_mode, "protocol"_a = protocol),
      "");
}

py::tuple PlainValue(const StructValue& value) {
  switch (value.kind) {
    case StructValue::Kind::kNull:
      return py::make_tuple("null", py::none());
    case StructValue::Kind::kNumber:
      return py::make_tuple("number", value.number);
    case StructValue::Kind::kString:
      return py::make_tuple("string", py::bytes(std::string(value.bytes)));
    case StructValue::Kind::kBool:
      return py::make_tuple("bool", value.boolean);
    case StructValue::Kind::kStruct:
      return py::make_tuple("struct", py::bytes(std::string(value.bytes)));
    case StructValue::Kind::kList:
      break;
  }
  return py::make_tuple("list", py::bytes(std::string(value.bytes)));
}

// Of a Struct under the name "n".
std::optional<StructValue> ValueIn(std::string_view bytes, std::string_view key) {
  const NamedStruct structs[] = {{.name = "n", .bytes = bytes}};
  return FindMetadata(structs, "n", key);
}

std::vector<HeaderField> FieldsOf(const std::vector<BytesPair>& pairs) {
  std::vector<HeaderField> fields;
  for (const auto& [name, value] : pairs) fields.push_back({.name = name, .value = value});
  return fields;
}

using MetadataTuple = std::tuple<std::string, std::string, std::vector<std::pair<std::string, double>>>;

py::bytes WriteResponse(
    const std::string& part, const std::vector<BytesPair>& set_headers,
    const std::vector<std::string>& remove_headers, bool clear_route_cache, const std::string& name_space,
    const std::vector<MetadataTuple>& metadata, const std::optional<std::array<int, 5>>& mode_override) {
  const std::vector<HeaderField> set = FieldsOf(set_headers);
  const std::vector<std::string_view> remove(remove_headers.begin(), remove_headers.end());
  std::vector<std::vector<NamedNumber>> numbers;
  std::vector<MetadataField> fields;
  for (const auto& [key, text, pairs] : metadata) {
    std::vector<NamedNumber>& mine = numbers.emplace_back();
    for (const auto& [name, number] : pairs) mine.push_back({.name = name, .number = number});
  }
  for (size_t i = 0; i < metadata.size(); ++i)
    fields.push_back(
        {.key = std::get<0>(metadata[i]), .text = std::get<1>(metadata[i]), .numbers = numbers[i]});
  ProcessingResponse response{
      .part = PartOf(part),
      .set_headers = set,
      .remove_headers = remove,
      .clear_route_cache = clear_route_cache,
      .metadata_namespace = name_space,
      .metadata = fields};
  if (mode_override) {
    const auto& mode = *mode_override;
    response.mode_override = ModeOverride{
        .response_headers = static_cast<HeaderSendMode>(mode[0]),
        .request_body = static_cast<BodySendMode>(mode[1]),
        .response_body = static_cast<BodySendMode>(mode[2]),
        .request_trailers = static_cast<HeaderSendMode>(mode[3]),
        .response_trailers = static_cast<HeaderSendMode>(mode[4])};
  }
  return WriteProcessingResponse(response);
}

class StreamForTest {
 public:
  StreamForTest(
      size_t max_body_bytes, int assumed_mode, std::string metadata_namespace, std::string subset_namespace)
      : metadata_namespace_(std::move(metadata_namespace)),
        subset_namespace_(std::move(subset_namespace)),
        options_{
            .metadata_namespace = metadata_namespace_,
            .subset_namespace = subset_namespace_,
            .max_body_bytes = max_body_bytes,
            .assumed_mode = static_cast<BodySendMode>(assumed_mode)},
        stream(options_) {}

  // What there is more of, or the error.
  std::string Take(std::string message) {
    ProcessingRequest request;
    const Status read = ReadProcessingRequest(message, &request);
    if (!read.ok()) return StatusText(read);
    const StatusOr<ExtProcStream::Progress> progress = stream.Take(request, &message);
    if (!progress.ok()) return StatusText(progress.status());
    constexpr std::array<std::string_view, 3> kNames = {"nothing", "request", "response"};
    return std::string(kNames[static_cast<size_t>(*progress)]);
  }
  void Choose(
      const std::vector<std::string>& endpoints, const std::vector<BytesPair>& headers,
      const std::vector<std::pair<std::string, double>>& scores) {
    if (!stream.may_pick() || endpoints.empty()) throw py::value_error("there can be no choice now");
    const std::vector<HeaderField> fields = FieldsOf(headers);
    std::vector<NamedNumber> numbers;
    for (const auto& [name, number] : scores) numbers.push_back({.name = name, .number = number});
    stream.Choose({.endpoints = endpoints, .headers = fields, .scores = numbers});
  }
  py::list Head() const {
    py::list fields;
    for (const HeaderField& field : stream.head())
      fields.append(py::make_tuple(py::bytes(std::string(field.name)), py::bytes(std::string(field.value))));
    return fields;
  }
  py::list TakeMessages() {
    py::list messages;
    for (const std::string& message : stream.TakeMessages()) messages.append(py::bytes(message));
    return messages;
  }

 private:
  const std::string metadata_namespace_;
  const std::string subset_namespace_;
  const ExtProcOptions options_;

 public:
  ExtProcStream stream;
};

}  // namespace

void BindTestingPicker(py::module_& testing) {
  testing.def("read_processing_request", &ReadRequest);
  testing.def("find_metadata", [](const std::string& bytes, const std::string& key) -> py::object {
    const std::optional<StructValue> value = ValueIn(bytes, key);
    return value ? py::object(PlainValue(*value)) : py::none();
  });
  testing.def("read_strings", [](const std::string& list) {
    std::vector<std::string_view> texts;
    const Status status = ReadStrings(list, &texts);
    py::list plain;
    for (const std::string_view text : texts) plain.append(py::bytes(std::string(text)));
    return py::make_tuple(plain, StatusText(status));
  });
  testing.def(
      "write_processing_response", &WriteResponse, py::arg("part"), py::kw_only(),
      py::arg("set_headers") = std::vector<BytesPair>(),
      py::arg("remove_headers") = std::vector<std::string>(), py::arg("clear_route_cache") = false,
      py::arg("metadata_namespace") = "", py::arg("metadata") = std::vector<MetadataTuple>(),
      py::arg("mode_override") = py::none());
  testing.def(
      "write_streamed_body", [](const std::string& part, const std::string& body, bool end_of_stream) {
        return py::bytes(WriteStreamedBody(PartOf(part), body, end_of_stream));
      });
  testing.def("write_timeout_override", [](uint64_t milliseconds) {
    return py::bytes(WriteTimeoutOverride(milliseconds));
  });
  testing.def(
      "write_immediate_response",
      [](int status, const std::vector<BytesPair>& headers, const std::string& body,
         const std::string& details) {
        const std::vector<HeaderField> fields = FieldsOf(headers);
        return py::bytes(
            WriteImmediateResponse({.status = status, .headers = fields, .body = body, .details = details}));
      },
      py::arg("status"), py::kw_only(), py::arg("headers") = std::vector<BytesPair>(), py::arg("body") = "",
      py::arg("details") = "");

  py::class_<StreamForTest>(testing, "ExtProcStream")
      .def(
          py::init<size_t, int, std::string, std::string>(), py::kw_only(),
          py::arg("max_body_bytes") = 1 << 20, py::arg("assumed_mode") = 4,
          py::arg("metadata_namespace") = "envoy.lb", py::arg("subset_namespace") = "envoy.lb.subset_hint")
      .def("take", &StreamForTest::Take)
      .def(
          "choose", &StreamForTest::Choose, py::arg("endpoints"), py::kw_only(),
          py::arg("headers") = std::vector<BytesPair>(),
          py::arg("scores") = std::vector<std::pair<std::string, double>>())
      .def(
          "reject", [](StreamForTest& self, int status,
                       const std::string& body) { self.stream.Reject({.status = status, .body = body}); })
      .def("take_messages", &StreamForTest::TakeMessages)
      .def_property_readonly("head", &StreamForTest::Head)
      .def_property_readonly(
          "body", [](const StreamForTest& self) { return py::bytes(std::string(self.stream.body())); })
      .def_property_readonly(
          "body_is_whole", [](const StreamForTest& self) { return self.stream.body_is_whole(); })
      .def_property_readonly("may_pick", [](const StreamForTest& self) { return self.stream.may_pick(); })
      .def_property_readonly("must_pick", [](const StreamForTest& self) { return self.stream.must_pick(); })
      .def_property_readonly(
          "response_status", [](const StreamForTest& self) { return self.stream.response_status(); })
      .def_property_readonly(
          "served", [](const StreamForTest& self) { return std::string(self.stream.served()); })
      .def_property_readonly(
          "response_ended", [](const StreamForTest& self) { return self.stream.response_ended(); })
      .def_property_readonly(
          "is_amid_body", [](const StreamForTest& self) { return self.stream.is_amid_body(); })
      // None: there is no subset.
      .def(
          "subset_contains",
          [](const StreamForTest& self, const std::string& host, uint16_t port) -> py::object {
            const std::optional<EndpointSubset>& subset = self.stream.subset();
            return subset ? py::object(py::bool_(subset->Contains(host, port))) : py::none();
          });

  testing.def("parse_endpoint_name", [](const std::string& text) -> py::object {
    const std::optional<EndpointName> name = ParseEndpointName(text);
    if (!name) return py::none();
    return py::make_tuple(
        std::string(name->host), name->port ? py::object(py::int_(*name->port)) : py::object(py::none()));
  });
  testing.def(
      "endpoint_text", [](const std::string& host, uint16_t port) { return EndpointText(host, port); });
  // None: no subset; else its size and whether each of `endpoints` is in it.
  testing.def(
      "endpoint_subset",
      [](const std::string& bytes, const std::string& key,
         const std::vector<std::pair<std::string, uint16_t>>& endpoints) -> py::object {
        const auto subset = EndpointSubset::Read(ValueIn(bytes, key));
        if (!subset.ok()) return py::str(StatusText(subset.status()));
        if (!*subset) return py::none();
        py::list contained;
        for (const auto& [host, port] : endpoints) contained.append((*subset)->Contains(host, port));
        return py::make_tuple((*subset)->size(), contained);
      });
}

}  // namespace vllm_router
