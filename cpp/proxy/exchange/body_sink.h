// BodySink: where the body of a response goes, piece by piece.
//
//   Relay --Write(data, last)--> ClientSink     framed for the client, behind the response's head
//                                CapturedBody   a copy in memory, up to a limit
//                                TeeSink        both of two, in order
//
// A sink that cannot take a piece at once returns kNotYet; then Flush() ends when it has. The data stays
// unchanged until then, and nothing more is read from the worker, so the slowest sink sets the pace.
//
//   BodySink::Took took = sink.Write(data, last);
//   if (took == BodySink::Took::kNotYet) took = co_await sink.Flush();
//
// Cost: a virtual call per piece, not per byte. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "net/socket.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "net/write_all.h"

namespace vllm_router {

class BodySink {
 public:
  enum class Took : uint8_t {
    kAll,
    kNotYet,
    kGone,    // it broke
    kClosed,  // it was closed on our side; its closer has the reason
  };

  virtual ~BodySink() = default;
  // `data` is without framing and may be empty: in the first piece, if the head came alone, and in the
  // `last` one. No call follows kGone, kClosed or the last piece.
  virtual Took Write(std::string_view data, bool last) = 0;
  // REQUIRES: Write() returned kNotYet.
  virtual Task<Took> Flush() = 0;
};

// A client's socket. Each piece leaves in one write, with the head or framing around it.
class ClientSink final : public BodySink {
 public:
  // All must outlive it. `head` is written in front of the first piece; `chunked`: the client gets
  // chunks, else the bytes as they are. `stall.timer` is its own.
  ClientSink(Socket& socket, std::string_view head, bool chunked, const WriteStall& stall)
      : socket_(socket), head_(head), chunked_(chunked), stall_(stall) {}

  Took Write(std::string_view data, bool last) override;
  Task<Took> Flush() override;

 private:
  Socket& socket_;
  std::string_view head_;  // empty once it is in pieces_
  const bool chunked_;
  WriteStall stall_;
  std::array<char, 20> size_line_;
  std::array<iovec, 4> pieces_;
  std::span<iovec> rest_;  // of pieces_: what the socket has yet to take
};

// The first `limit` bytes, in memory. Never slow, and never fails.
class CapturedBody final : public BodySink {
 public:
  explicit CapturedBody(size_t limit) : limit_(limit) {}

  Took Write(std::string_view data, bool last) override;
  Task<Took> Flush() override { co_return Took::kAll; }

  const std::string& bytes() const { return bytes_; }
  bool full() const { return bytes_.size() == limit_; }
  bool whole() const { return whole_; }  // the body has come to its end, and was not longer than the limit

 private:
  const size_t limit_;
  std::string bytes_;
  bool cut_ = false;
  bool whole_ = false;
};

// Each piece goes to `first` and, once that has taken it, to `second`. Both must outlive it.
class TeeSink final : public BodySink {
 public:
  TeeSink(BodySink& first, BodySink& second) : first_(first), second_(second) {}

  Took Write(std::string_view data, bool last) override;
  Task<Took> Flush() override;

 private:
  BodySink& first_;
  BodySink& second_;
  std::string_view data_;  // the second one's, while the first one is waited for
  bool last_ = false;
  bool at_second_ = false;
};

}  // namespace vllm_router
