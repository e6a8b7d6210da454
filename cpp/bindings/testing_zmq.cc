// ZeroMQ sockets for tests, whose other side is pyzmq.
#include <pybind11/stl.h>

#include "bindings/bindings.h"
#include "bindings/errors.h"
#include "net/ip_range.h"
#include "net/zmq_socket.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

ZmqSocketType ZmqTypeByName(const std::string& name) {
  constexpr const char* kNames[] = {"SUB", "PUB", "DEALER", "ROUTER", "PAIR"};
  for (size_t i = 0; i < std::size(kNames); ++i) {
    if (name == kNames[i]) return static_cast<ZmqSocketType>(i);
  }
  throw py::value_error("no type " + name);
}

ZmqOptions ZmqOptionsOf(const py::kwargs& given) {
  ZmqOptions options;
  const auto read = [&given](const char* name, auto* value) {
    if (given.contains(name)) *value = given[name].cast<std::remove_reference_t<decltype(*value)>>();
  };
  read("receive_limit", &options.receive_limit);
  read("send_limit", &options.send_limit);
  read("max_frame_bytes", &options.max_frame_bytes);
  read("reconnect_ms", &options.reconnect_ms);
  read("reconnect_max_ms", &options.reconnect_max_ms);
  read("heartbeat_ms", &options.heartbeat_ms);
  read("heartbeat_timeout_ms", &options.heartbeat_timeout_ms);
  read("keepalive_idle_s", &options.keepalive_idle_s);
  read("keepalive_interval_s", &options.keepalive_interval_s);
  read("keepalive_count", &options.keepalive_count);
  read("ipv6", &options.ipv6);
  read("subscriptions", &options.subscriptions);
  return options;
}

py::object FramesOrWhy(ZmqSocket& socket, size_t max_frames) {
  std::vector<std::string> frames;
  switch (socket.Receive(max_frames, &frames)) {
    case ZmqReceive::kMessage:
      break;
    case ZmqReceive::kNone:
      return py::none();
    case ZmqReceive::kTooManyFrames:
      return py::str("too many frames");
    case ZmqReceive::kError:
      return py::str("error");
  }
  py::list list;
  for (const std::string& frame : frames) list.append(py::bytes(frame));
  return list;
}

// A socket, a monitor or a descriptor of each item, and for which of them to wait for writing as well.
std::vector<std::pair<bool, bool>> Poll(const py::list& targets, int timeout_ms, bool for_sending) {
  std::vector<ZmqPollItem> items;
  for (const py::handle target : targets) {
    ZmqPollItem item{.for_sending = for_sending};
    if (py::isinstance<ZmqSocket>(target)) {
      item.socket = target.cast<ZmqSocket*>();
    } else if (py::isinstance<ZmqMonitor>(target)) {
      item.socket = &target.cast<ZmqMonitor*>()->socket();
    } else {
      item.descriptor = target.cast<int>();
    }
    items.push_back(item);
  }
  {
    const py::gil_scoped_release release;
    ZmqPoll(items, timeout_ms);
  }
  std::vector<std::pair<bool, bool>> ready;
  for (const ZmqPollItem& item : items) ready.emplace_back(item.readable, item.writable);
  return ready;
}

}  // namespace

void BindTestingZmq(py::module_& testing) {
  py::class_<ZmqContext>(testing, "ZmqContext")
      .def(py::init<int>(), py::arg("max_sockets") = ZmqContext::kMaxSockets);
  py::class_<ZmqMonitor>(testing, "ZmqMonitor")
      .def(
          "next",
          [](ZmqMonitor& monitor) -> py::object {
            ZmqEvent event;
            if (!monitor.Next(&event)) return py::none();
            const bool connected = event.kind == ZmqEvent::Kind::kConnected;
            return py::make_tuple(connected ? "connected" : "disconnected", event.endpoint);
          })
      // Of the next event.
      .def("next_connection", [](ZmqMonitor& monitor) {
        ZmqEvent event;
        return monitor.Next(&event) ? event.connection : -1;
      });
  py::class_<ZmqSocket>(testing, "ZmqSocket")
      .def(py::init([](const ZmqContext& context, const std::string& type, const py::kwargs& options) {
        return ValueOrThrow(ZmqSocket::Open(context, ZmqTypeByName(type), ZmqOptionsOf(options)));
      }))
      .def(
          "connect",
          [](ZmqSocket& socket, const std::string& endpoint) { ThrowIfError(socket.Connect(endpoint)); })
      .def(
          "bind", [](ZmqSocket& socket, const std::string& endpoint) { ThrowIfError(socket.Bind(endpoint)); })
      .def_property_readonly("last_endpoint", &ZmqSocket::last_endpoint)
      .def(
          "send",
          [](ZmqSocket& socket, const std::vector<std::string>& frames) {
            const std::vector<std::string_view> views(frames.begin(), frames.end());
            return socket.Send(views);
          })
      // The frames, None for no message, or why there are none.
      .def("receive", &FramesOrWhy, py::arg("max_frames") = 8)
      // The number of the connection by which the message came.
      .def(
          "receive_connection",
          [](ZmqSocket& socket) {
            std::vector<std::string> frames;
            int connection = -1;
            return socket.Receive(8, &frames, &connection) == ZmqReceive::kMessage ? connection : -1;
          })
      .def(
          "receive_peer_address",
          [](ZmqSocket& socket) {
            std::vector<std::string> frames;
            std::string address;
            (void)socket.Receive(8, &frames, nullptr, &address);
            return address;
          })
      .def("monitor", [](ZmqSocket& socket) { return ValueOrThrow(ZmqMonitor::Open(socket)); });
  testing.def("ip_range_contains", [](const std::string& range, const std::string& address) {
    return ValueOrThrow(IpRange::Parse("allowed", range)).Contains(address);
  });
  testing.def("zmq_poll", &Poll, py::arg("targets"), py::arg("timeout_ms"), py::arg("for_sending") = false);
}

}  // namespace vllm_router
