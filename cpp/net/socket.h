// Socket: one TCP connection on a loop. Bytes move by the Try… calls, which never wait; waiting is a separate step.
//
//   for (;;) {
//     const IoResult read = socket.TryRead(buffer.room());
//     if (read.would_block()) { if (!co_await socket.Readable()) break; continue; }
//     …
//   }
//
// Whether there is something to read is remembered (ready_set.h), so a wait costs no system call, and bytes that arrive
// while nobody waits are found by the next wait. One waits for reading at a time; while nobody does, a function may be
// called instead (WatchReadable).
//
// After StartTls() the bytes on the way are TLS's (net/tls.h), and all of this goes on to be about those inside: one
// waits for, reads and writes plain text. Closing tells the peer properly; an end that the peer does not tell is an
// error.
//
// Closing ends all waits: whoever awaits resumes with false in a later turn of the loop. One thread. Cost: idle, the
// object and its place in the set, no buffer.
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

// What a non-blocking call did.
struct IoResult {
  int64_t bytes = 0;  // > 0: moved
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
  // Takes over a connected, or connecting, non-blocking descriptor. Closes it if the loop cannot watch it.
  Socket(EventLoop& loop, int descriptor);
  Socket(Socket&&) noexcept = default;
  Socket& operator=(Socket&& other) noexcept;
  ~Socket() { Close(); }

  // From here on the bytes are TLS's. REQUIRES: none has been read or written. Nor may any be until Handshake() is over.
  // `host`, `port`: of the worker at the other end; clients have none.
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
  // False: it failed, or the socket was closed meanwhile.
  HandshakeAwaiter Handshake() { return {this}; }

  bool is_open() const;
  void Close();
  // RST instead of FIN, so that the peer cannot mistake this for a proper end.
  void Abort();
  void ShutdownWrite();

  IoResult TryRead(std::span<char> room);
  IoResult TryWrite(std::span<const iovec> pieces);
  // Whether bytes have arrived that nobody has read. Takes none.
  bool HasUnread() const;

  struct ReadableAwaiter {
    Socket* socket;
    bool await_ready();
    void await_suspend(std::coroutine_handle<> waiter);
    bool await_resume() const;
  };
  // True: there is something to read (or an end to be read). False: the socket was closed on this side, or
  // InterruptRead() came first.
  ReadableAwaiter Readable() { return {this}; }
  // Resumes whoever awaits Readable(), in the loop's next turn.
  void InterruptRead();

  struct WritableAwaiter {
    Socket* socket;
    bool await_ready() const;
    void await_suspend(std::coroutine_handle<> waiter);
    bool await_resume() const;
  };
  WritableAwaiter Writable() { return {this}; }

  // Reads as soon as there is something. REQUIRES: no other wait for reading, no watcher.
  struct ReadAwaiter {
    Socket* socket;
    std::span<char> room;
    IoResult result;
    bool await_ready();
    void await_suspend(std::coroutine_handle<> waiter);
    IoResult await_resume() const { return result; }
  };
  ReadAwaiter Read(std::span<char> room) { return {this, room, {}}; }

  // `callback` is called (once, from the loop) instead of resuming anybody when there is something to read. Null: no longer.
  using Callback = void (*)(void* context);
  void WatchReadable(Callback callback, void* context);
  // The same when the peer has closed or broken the connection, be there unread bytes before its end or not.
  void WatchEnd(Callback callback, void* context);
  // Whether the connection is broken, and not only half-closed by the peer. A system call.
  bool IsBroken() const;

 private:
  friend class Connector;
  struct Impl;
  std::shared_ptr<Impl> impl_;  // what the loop has yet to do for it shares it
};

// Connecting: the addresses in turn, until one answers.
struct Address {
  bool v6 = false;
  uint8_t bytes[16] = {};
};

// Literal addresses only; nullopt for a name.
std::optional<Address> ParseAddress(std::string_view text);
std::string FormatAddress(const Address& address);

// A connect in progress, handshake included, which can be cut short.
class Connector {
 public:
  // `tls`: null for plain TCP; else `host` is whom the certificate has to name.
  explicit Connector(EventLoop& loop, std::shared_ptr<const TlsContext> tls = nullptr, std::string host = {});
  ~Connector();

  // errno of the attempt, 0 when connected, ECANCELED after Cancel(), EPROTO if TLS failed.
  Task<int> Connect(Address address, uint16_t port);
  void Cancel();
  Socket TakeSocket();
  const std::string& tls_error() const { return tls_error_; }

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
};

}  // namespace vllm_router
