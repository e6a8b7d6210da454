// grpc/ for its tests: frames, calls of the health service, and connections.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "grpc/grpc_connection.h"
#include "grpc/grpc_frame.h"
#include "grpc/health_check.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

// The messages, what ended the reading (empty: nothing), and the bytes of the message that is incomplete.
py::tuple ReadGrpcFrames(const std::vector<std::string>& pieces, size_t max_message_bytes) {
  using Result = GrpcFrameReader::Result;
  GrpcFrameReader reader(max_message_bytes);
  py::list messages;
  for (const std::string& piece : pieces) {
    std::string_view bytes = piece;
    for (Result result = Result::kMessage; result == Result::kMessage && !bytes.empty();) {
      result = reader.Read(&bytes);
      if (result == Result::kMessage) messages.append(py::bytes(reader.TakeMessage()));
      if (result == Result::kCompressed)
        return py::make_tuple(messages, "compressed", reader.partial_bytes());
      if (result == Result::kTooLarge) return py::make_tuple(messages, "too_large", reader.partial_bytes());
    }
  }
  return py::make_tuple(messages, "", reader.partial_bytes());
}

py::dict PlainEvent(const GrpcEvent& event) {
  using namespace py::literals;
  switch (event.kind) {
    case GrpcEvent::Kind::kOpened: {
      py::list metadata;
      for (const auto& [name, value] : event.metadata)
        metadata.append(py::make_tuple(py::bytes(name), py::bytes(value)));
      return py::dict(
          "kind"_a = "opened", "stream"_a = event.stream, "path"_a = event.path, "metadata"_a = metadata);
    }
    case GrpcEvent::Kind::kMessage:
      return py::dict(
          "kind"_a = "message", "stream"_a = event.stream, "message"_a = py::bytes(event.message));
    case GrpcEvent::Kind::kHalfClosed:
      return py::dict("kind"_a = "half_closed", "stream"_a = event.stream);
    case GrpcEvent::Kind::kReset:
      break;
  }
  return py::dict(
      "kind"_a = "reset", "stream"_a = event.stream, "code"_a = static_cast<int>(event.code),
      "reason"_a = event.reason);
}

}  // namespace

void BindTestingGrpc(py::module_& testing) {
  testing.def(
      "read_grpc_frames", &ReadGrpcFrames, py::arg("pieces"), py::kw_only(),
      py::arg("max_message_bytes") = 4 << 20);
  testing.def("grpc_frame", [](const std::string& message) {
    const GrpcFrame frame(message);
    std::string out(frame.size(), '\0');
    frame.Copy(0, out.data(), out.size());
    return py::bytes(out);
  });
  testing.def("grpc_message_text", [](const std::string& text) { return GrpcMessageText(text); });

  testing.def("read_health_check", [](const std::string& message) -> py::object {
    const std::optional<std::string_view> service = ReadHealthCheckRequest(message);
    return service ? py::object(py::bytes(std::string(*service))) : py::none();
  });
  testing.def(
      "health_call",
      [](const std::string& method, const std::string& request, const std::map<std::string, int>& states) {
        const HealthReply reply = RespondToHealthCall(
            method, request, [&states](std::string_view service) -> std::optional<ServingStatus> {
              const auto found = states.find(std::string(service));
              if (found == states.end()) return std::nullopt;
              return static_cast<ServingStatus>(found->second);
            });
        return py::make_tuple(
            static_cast<int>(reply.code), py::bytes(reply.message), std::string(reply.text));
      });

  py::class_<GrpcConnection>(testing, "GrpcConnection")
      .def(
          py::init([](uint32_t max_streams, size_t max_message_bytes, size_t max_head_bytes,
                      size_t max_partial_bytes, uint32_t stream_window, uint32_t connection_window,
                      uint32_t max_resets_per_second) {
            return std::make_unique<GrpcConnection>(GrpcLimits{
                .max_streams = max_streams,
                .max_message_bytes = max_message_bytes,
                .max_head_bytes = max_head_bytes,
                .max_partial_bytes = max_partial_bytes,
                .stream_window = stream_window,
                .connection_window = connection_window,
                .max_resets_per_second = max_resets_per_second});
          }),
          py::kw_only(), py::arg("max_streams") = 1024, py::arg("max_message_bytes") = 4 << 20,
          py::arg("max_head_bytes") = 64 << 10, py::arg("max_partial_bytes") = 64 << 20,
          py::arg("stream_window") = 1 << 20, py::arg("connection_window") = 16 << 20,
          py::arg("max_resets_per_second") = 100)
      .def(
          "feed",
          [](GrpcConnection& connection, const std::string& bytes) {
            const Status status = connection.Feed(bytes);
            return status.ok() ? std::string() : std::string(status.message());
          })
      .def(
          "take_events",
          [](GrpcConnection& connection) {
            py::list events;
            for (const GrpcEvent& event : connection.TakeEvents()) events.append(PlainEvent(event));
            return events;
          })
      .def(
          "write",
          [](GrpcConnection& connection, size_t most) {
            std::string out;
            const bool more = connection.Write(&out, most);
            return py::make_tuple(py::bytes(out), more);
          },
          py::arg("most") = 64 << 10)
      .def(
          "send", [](GrpcConnection& connection, int32_t stream,
                     const std::string& message) { return connection.Send(stream, message); })
      .def(
          "finish",
          [](GrpcConnection& connection, int32_t stream, int code, const std::string& text) {
            return connection.Finish(stream, static_cast<GrpcCode>(code), text);
          },
          py::arg("stream"), py::arg("code") = 0, py::arg("text") = "")
      .def("reset", &GrpcConnection::Reset)
      .def("set_paused", &GrpcConnection::SetPaused)
      .def("end_stalled_writes", &GrpcConnection::EndStalledWrites)
      .def("end_stalled_reads", &GrpcConnection::EndStalledReads)
      .def("unsent_bytes", &GrpcConnection::unsent_bytes)
      .def("drain", &GrpcConnection::Drain)
      .def("close", &GrpcConnection::Close)
      .def_property_readonly("greeted", &GrpcConnection::greeted)
      .def_property_readonly("ended", &GrpcConnection::ended)
      .def_property_readonly("streams", &GrpcConnection::streams);
}

}  // namespace vllm_router
