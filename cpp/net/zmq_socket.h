// ZmqSocket: one ZeroMQ socket whose calls do not wait. ZmqPoll() waits, for sockets and descriptors.
//
//   ZmqContext context;                                    I/O thread of libzmq
//   auto socket = ZmqSocket::Open(context, ZmqSocketType::kSub, {.subscriptions = {""}});
//   ROUTER_RETURN_IF_ERROR(socket->Connect("tcp://10.0.0.7:5557"));
//   for (;;) {
//     ZmqPoll(items, 1000);                                the socket, and an eventfd that ends the wait
//     while (socket->Receive(kFrames, &frames) == ZmqReceive::kMessage) …
//   }
//
// libzmq connects in the background and again after a loss; ZmqMonitor tells of either. It subscribes again
// within the next call on the socket, so one that is not received from must be polled. A message is a list
// of frames, sent and received as a whole.
//
// Cost: a context is two threads, from its first socket on; a message received is copied once, a message
// sent once. Memory is bounded by the limits of ZmqOptions, except that libzmq has no limit on the number
// of frames of one message. A context is for any thread; a socket and its monitor are for one thread each,
// and may be handed over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"

namespace vllm_router {

// What sockets share. It lives until the last of them is closed.
class ZmqContext {
 public:
  static constexpr int kMaxSockets = 1023;

  // `max_sockets`: a monitor is one too.
  explicit ZmqContext(int max_sockets = kMaxSockets);

 private:
  friend class ZmqSocket;
  friend class ZmqMonitor;
  struct Impl;
  explicit ZmqContext(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}
  std::shared_ptr<Impl> impl_;
};

enum class ZmqSocketType : uint8_t { kSub, kPub, kDealer, kRouter, kPair };

// The defaults are libzmq's. What is sent and not yet on the wire is dropped on closing.
struct ZmqOptions {
  int receive_limit = 1000;  // messages that wait for Receive(), of each peer; 0: no limit
  int send_limit = 1000;     // messages that wait for the wire, of each peer; 0: no limit
  // A peer that sends a longer frame is disconnected, and this socket does not connect to it again: open
  // another. -1: no limit.
  int64_t max_frame_bytes = -1;
  int reconnect_ms = 100;        // the first back-off
  int reconnect_max_ms = 0;      // it doubles up to this; 0: it stays
  int heartbeat_ms = 0;          // interval of pings; 0: none
  int heartbeat_timeout_ms = 0;  // without a response for so long, the peer is gone
  // Of TCP; 0: as the system is set.
  int keepalive_idle_s = 0;
  int keepalive_interval_s = 0;
  int keepalive_count = 0;
  bool ipv6 = false;
  std::vector<std::string> subscriptions;  // kSub: prefixes of the first frame; "" is every message
};

enum class ZmqReceive : uint8_t {
  kMessage,
  kNone,           // nothing has arrived
  kTooManyFrames,  // a message was dropped
  kError,          // the socket can receive no more
};

class ZmqSocket {
 public:
  // ResourceExhausted: the context has no room for one more. InvalidArgument: an option that libzmq
  // rejects, by name.
  static StatusOr<ZmqSocket> Open(
      const ZmqContext& context, ZmqSocketType type, const ZmqOptions& options = {});
  ZmqSocket(ZmqSocket&&) noexcept;
  ZmqSocket& operator=(ZmqSocket&&) noexcept;
  ~ZmqSocket();

  // Starts to connect, and does not report whether anything listens there.
  Status Connect(const std::string& endpoint);
  // tcp://127.0.0.1:* takes any free port, which last_endpoint() names.
  Status Bind(const std::string& endpoint);
  // Of the last Connect() or Bind(), in full.
  std::string last_endpoint() const;

  // False: nothing was sent, because no peer is there or the queue is full. kPub drops the message for
  // each peer whose queue is full, kRouter for a peer that is gone, and return true. REQUIRES: a frame.
  bool Send(std::span<const std::string_view> frames);
  // The next message. `frames` is overwritten; its memory is used again. `connection`, if not null: the number
  // that ZmqEvent has of the connection by which it came, -1 if libzmq does not tell. `peer_address`, likewise: the
  // IP address at the connection's other end, empty if it does not tell.
  ZmqReceive Receive(
      size_t max_frames, std::vector<std::string>* frames, int* connection = nullptr,
      std::string* peer_address = nullptr);

 private:
  friend class ZmqMonitor;
  friend int ZmqPoll(std::span<struct ZmqPollItem> items, int timeout_ms);
  ZmqSocket(std::shared_ptr<ZmqContext::Impl> context, void* socket);
  void Close();

  std::shared_ptr<ZmqContext::Impl> context_;
  void* socket_;                      // null: moved from
  std::shared_ptr<void*> monitored_;  // the socket, for its monitor; null in it: one of the two is gone
};

struct ZmqEvent {
  enum class Kind : uint8_t {
    kConnected,     // and both ends have agreed on the protocol
    kDisconnected,  // also after an attempt that came as far as TCP
    kAccepted,      // by a bound socket; if the monitor was opened for these too
  };
  Kind kind;
  std::string endpoint;
  // Of kDisconnected and kAccepted: its descriptor in libzmq. A later one may have the same.
  int connection = -1;
};

// The connections of one socket, from Open() on. Read it: events that wait have no limit.
//
// The socket reports nothing any more before either is closed: an event that nothing reads would block libzmq's
// I/O thread, and with it all sockets of the context, for good.
class ZmqMonitor {
 public:
  // In place of one that it had. Both belong to one thread from then on.
  static StatusOr<ZmqMonitor> Open(ZmqSocket& socket, bool with_accepted = false);
  ZmqMonitor(ZmqMonitor&&) noexcept = default;
  ZmqMonitor& operator=(ZmqMonitor&&) noexcept;
  ~ZmqMonitor();
  // The next event; false: none.
  bool Next(ZmqEvent* event);
  const ZmqSocket& socket() const { return events_; }  // for ZmqPoll()

 private:
  ZmqMonitor(ZmqSocket events, std::shared_ptr<void*> monitored)
      : events_(std::move(events)), monitored_(std::move(monitored)) {}
  ZmqSocket events_;
  std::shared_ptr<void*> monitored_;  // null: moved from
  std::vector<std::string> frames_;
};

struct ZmqPollItem {
  const ZmqSocket* socket = nullptr;  // null: `descriptor` counts
  int descriptor = -1;
  bool for_sending = false;  // wait until it can be written as well
  bool readable = false;     // set by ZmqPoll(); also when reading would show an error
  bool writable = false;
};

// Waits until an item is ready, at most timeout_ms; negative: without end. Returns the number of ready
// items; 0 also after a signal.
int ZmqPoll(std::span<ZmqPollItem> items, int timeout_ms);

}  // namespace vllm_router
