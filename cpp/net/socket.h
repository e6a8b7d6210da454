// Socket: one TCP connection on a loop. The Try… calls move bytes and never wait; waiting is a separate
// step.
//
//   for (bool readable = true; readable;) {
//     const IoResult read = socket.TryRead(buffer.room());
//     if (read.would_block()) { readable = co_await socket.Readable(); continue; }
//     …
//   }
//
// Readiness for reading is remembered (ready_set.h), so a wait costs no system call, and the next wait
// finds bytes that arrived without a waiter. There is at most one waiter for reading at a time; without
// one, a callback may be set instead (WatchReadable).
//
// After StartTls() the wire carries TLS (net/tls.h), and waits, reads and writes are about plaintext.
// Closing sends a proper TLS end; an end of stream without one from the peer is an error.
//
// Closing ends all waits: they resume with false in a later turn of the loop. One thread. Cost when
// idle: the object and its place in the set, no buffer.
#pragma once

#include <sys/uio.h>

#include <coroutine>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/event_loop.h"
#include "net/task.h"

namespace vllm_router {

class TlsContext;

// The result of a non-blocking call.
struct IoResult {
  int64_t bytes = 0;  // > 0: bytes moved
  int error = 0;      // errno; EAGAIN: would block
  bool eof = false;   // the peer will send no more
  bool would_block() const;
  bool ok() const { return error == 0 && !eof; }
};

struct Endpoint {
  std::string address;  // literal, as for X-Forwarded-For
  uint16_t port = 0;
};

class Socket {
 public:
  Socket() = default;  // not open
  // Takes over a connected or connecting non-blocking descriptor. Closes it if the loop cannot watch it.
  Socket(EventLoop& loop, int descriptor);
  Socket(Socket&&) noexcept = default;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  // Starts TLS on this connection. REQUIRES: no byte has been read or written; none may be until
  // Handshake() is over. `host`, `port`: of the worker at the other end; empty for a client.
  void StartTls(std::shared_ptr<const TlsContext> context, const std::string& host = {}, uint16_t port = 0);
  bool is_tls() const;
  const std::string& tls_error() const;  // why the handshake failed

  struct HandshakeAwaiter {
    Socket* socket;
    bool ok = false;
    bool await_ready();
    void await_suspend(std::coroutine_handle<> waiter);
    bool await_resume() const { return ok; }
  };
  // False: the handshake failed, or the socket was closed meanwhile.
  HandshakeAwaiter Handshake() { return {this}; }

  bool is_open() const;
  void Close();
  // Closes with RST instead of FIN, so that the peer cannot mistake this for a proper end.
  void Abort();
  void ShutdownWrite();

  IoResult TryRead(std::span<char> room);
  IoResult TryWrite(std::span<const iovec> pieces);
  // Whether unread bytes have arrived. Takes none.
  bool HasUnread() const;

  struct ReadableAwaiter {
    Socket* socket;
    bool await_ready();
    void await_suspend(std::coroutine_handle<> waiter);
    bool await_resume() const;
  };
  // True: bytes or an end can be read. False: the socket was closed on this side, or InterruptRead()
  // came first.
  ReadableAwaiter Readable() { return {this}; }
  // Resumes the waiter of Readable(), in the loop's next turn.
  void InterruptRead();

  struct WritableAwaiter {
    Socket* socket;
    bool await_ready() const;
    void await_suspend(std::coroutine_handle<> waiter);
    bool await_resume() const;
  };
  WritableAwaiter Writable() { return {this}; }

  // Reads as soon as something can be read. REQUIRES: no other wait for reading, no watcher.
  struct ReadAwaiter {
    Socket* socket;
    std::span<char> room;
    IoResult result;
    bool await_ready();
    void await_suspend(std::coroutine_handle<> waiter);
    IoResult await_resume() const { return result; }
  };
  ReadAwaiter Read(std::span<char> room) { return {this, room, {}}; }

  // `callback` is called once, from the loop, when something can be read; no waiter is resumed. Null:
  // stop.
  using Callback = void (*)(void* context);
  void WatchReadable(Callback callback, void* context);
  // The same when the peer has closed or broken the connection, even with unread bytes before its end.
  void WatchEnd(Callback callback, void* context);
  // Whether the connection is broken, not only half-closed by the peer. A system call.
  bool IsBroken() const;

 private:
  friend class Connector;
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with work that the loop has yet to do for it
};

// The addresses to connect to, attempted in turn until one succeeds.
struct Address {
  bool v6 = false;
  uint8_t bytes[16] = {};
};

// Literal addresses only; nullopt for a name.
std::optional<Address> ParseAddress(std::string_view text);
std::string FormatAddress(const Address& address);

// A connect in progress, handshake included, that can be cancelled.
class Connector {
 public:
  // `tls`: null for plain TCP; else the certificate must name `host`.
  explicit Connector(EventLoop& loop, std::shared_ptr<const TlsContext> tls = nullptr, std::string host = {});
  ~Connector();

  // Returns errno of the attempt: 0 when connected, ECANCELED after Cancel(), EPROTO if TLS failed.
  Task<int> Connect(Address address, uint16_t port);
  // To each of them in turn until one succeeds; the last error.
  Task<int> ConnectToAny(std::vector<Address> addresses, uint16_t port);
  void Cancel();
  Socket TakeSocket();
  const std::string& tls_error() const { return tls_error_; }  // of the last handshake that failed

 private:
  struct Awaiter {
    Connector* connector;
    Address address;
    uint16_t port;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> waiter);
    int await_resume() const;
  };

  EventLoop& loop_;
  const std::shared_ptr<const TlsContext> tls_;
  const std::string host_;
  std::string tls_error_;
  Socket socket_;
  int error_ = 0;
  bool cancelled_ = false;
};

}  // namespace vllm_router
