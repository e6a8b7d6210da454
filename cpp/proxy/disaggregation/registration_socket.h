// RegistrationSocket: where workers that register themselves are heard (pd_registration_service.h): a DEALER, which has
// no identities that two peers could contend for, and takes its peers' messages in turn.
//
//   socket.Bind("tcp://0.0.0.0:30001")    an error where another process has the port: again later, with BindAgain()
//   socket.Receive(&frames, &peer)        the next message, and the IP address that it comes from
//
// One thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/zmq_socket.h"

namespace vllm_router {

class RegistrationSocket {
 public:
  static constexpr int64_t kBindAgainNanos = 1'000'000'000;

  RegistrationSocket();

  // tcp://HOST:PORT of "HOST:PORT", where the host is an IP address, * or localhost and port 0 any free one.
  static StatusOr<std::string> EndpointOf(std::string_view address);

  Status Bind(std::string endpoint);
  // Where it could not be bound; at most once in kBindAgainNanos. Failures are logged. True: it is bound now.
  bool BindAgain(int64_t now_ns);
  bool is_bound() const { return socket_.has_value(); }

  // REQUIRES for these: is_bound().
  std::string endpoint() const { return socket_->last_endpoint(); }  // with the port
  ZmqPollItem poll_item() { return {.socket = &*socket_}; }
  ZmqReceive Receive(std::vector<std::string>* frames, std::string* peer);

 private:
  ZmqContext context_;
  std::string endpoint_;
  std::optional<ZmqSocket> socket_;
  std::string failure_;        // that was logged
  int64_t bind_again_ns_ = 0;  // not before
};

}  // namespace vllm_router
