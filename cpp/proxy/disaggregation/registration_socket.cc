#include "proxy/disaggregation/registration_socket.h"

#include <charconv>
#include <utility>

#include "base/log.h"
#include "base/option_spec.h"
#include "base/text.h"
#include "disaggregation/pd_registration.h"
#include "net/ip_range.h"

namespace vllm_router {
namespace {

constexpr size_t kMaxFrames = 2;  // an empty one, and the map
constexpr int kMaxWaiting = 64;   // messages of one peer
constexpr int kSockets = 8;       // of the context, whose own ones count

// Without brackets.
std::string_view AddressIn(std::string_view host) {
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return host;
}

}  // namespace

RegistrationSocket::RegistrationSocket() : context_(kSockets) {}

StatusOr<std::string> RegistrationSocket::EndpointOf(std::string_view address) {
  const size_t colon = address.rfind(':');
  const std::string_view host = address.substr(0, colon);
  const std::string_view port = colon == std::string_view::npos ? "" : address.substr(colon + 1);
  uint16_t number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  const bool is_port = !port.empty() && error == std::errc() && end == port.data() + port.size();
  const bool is_any = host == "*" || host == "localhost";
  if (is_port && (is_any || IpRange::Parse("", AddressIn(host)).ok()) && host.find('/') == host.npos) {
    return Concat(
        "tcp://", host == "localhost" ? "127.0.0.1" : host, ":", number == 0 ? "*" : std::string(port));
  }
  return absl::InvalidArgumentError(Concat(
      "vllm_discovery_address is ", Quoted(address),
      "; it must be HOST:PORT, where the host is an IP address of this machine or * for all, such as "
      "0.0.0.0:30001"));
}

Status RegistrationSocket::Bind(std::string endpoint) {
  endpoint_ = std::move(endpoint);
  ZmqOptions options;
  options.receive_limit = kMaxWaiting;
  options.send_limit = 1;  // nothing is sent
  options.max_frame_bytes = static_cast<int64_t>(kMaxPdMessage);
  options.ipv6 = endpoint_.find('[') != std::string::npos;
  StatusOr<ZmqSocket> socket = ZmqSocket::Open(context_, ZmqSocketType::kDealer, options);
  if (!socket.ok()) return socket.status();
  ROUTER_RETURN_IF_ERROR(socket->Bind(endpoint_));
  socket_ = *std::move(socket);
  return absl::OkStatus();
}

bool RegistrationSocket::BindAgain(int64_t now_ns) {
  if (now_ns < bind_again_ns_) return false;
  bind_again_ns_ = now_ns + kBindAgainNanos;
  const Status status = Bind(endpoint_);
  if (status.ok()) return true;
  if (status.message() == failure_) return false;
  failure_ = std::string(status.message());
  Log(LogLevel::kError, Concat(
                            "registration: ", failure_,
                            "; workers that register are not heard until the router can listen there"));
  return false;
}

ZmqReceive RegistrationSocket::Receive(std::vector<std::string>* frames, std::string* peer) {
  return socket_->Receive(kMaxFrames, frames, nullptr, peer);
}

}  // namespace vllm_router
