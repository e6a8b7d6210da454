// RequestBody: the bytes after a request head, read according to the exchange's body plan.
//
//   plan    when                                 held                   may be sent again
//   none    no body                              nothing                yes
//   buffer  at most 64 KiB, or needed by policy  the whole body         yes, until the response's first byte
//   prefix  needed by policy, and over 8 MiB     the first 8 MiB until  no
//                                                sent; then a window
//   stream  longer; the head is enough to route  up to 1 MiB: what has  yes
//                                                come; else a window    no
//
// A body of known length that lies wholly behind its head in the connection's buffer is used where it
// is. A longer one is read straight into a block of its size and sent from there. A chunked one is
// decoded as it arrives.
//
// What is held beyond 64 KiB counts against --body-memory-mb. A body that must be held claims memory as
// its bytes arrive, twice as much each time, and is read no further than its claim
// (routing/body_budget.h). A body that is only kept for another attempt claims its length at once, and
// is not kept if half of the memory is in use.
//
// BodyUpload waits for the client and for memory. Belongs to one exchange.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "http/body_reader.h"
#include "net/buffer.h"
#include "net/task.h"
#include "proxy/exchange/body_upload.h"

namespace vllm_router {

class Connection;

class RequestBody {
 public:
  using End = BodyEnd;

  // `head_bytes`: where in connection.in the body begins.
  RequestBody(Connection& connection, BodyFraming framing, uint64_t content_length, size_t head_bytes);

  // Reads until the body is complete or `limit` bytes of it are held, or a few more.
  Task<End> Fill(uint64_t limit);
  // Takes what has arrived already, if it may be kept for another attempt: a complete body then need not
  // be streamed.
  End TakeArrived();
  // The alternative to holding it all, piece by piece: piece() is the next stretch, empty when
  // complete() and all of it has been handed out.
  Task<End> Next();
  std::string_view piece() const { return piece_; }
  // Whether Rewind() may restart the pieces from the first.
  bool keeps_pieces() const { return keeps_pieces_; }
  void Rewind();

  bool complete() const { return reader_.ended(); }
  // Everything read so far, decoded, padded as simdjson requires. REQUIRES: keeps_pieces(), or no Next()
  // so far.
  std::string_view held() const;
  // The same, writable. REQUIRES: more than 64 KiB.
  std::span<char> held_bytes() { return {held_.data(), held_.size()}; }
  uint64_t bytes() const { return bytes_; }  // decoded, so far
  // Other bytes instead of some of what is held. REQUIRES: complete(), and no Next() so far.
  void Replace(size_t offset, size_t length, std::string_view text);

  // Whether kTooSlow is because others waited for what it held.
  bool was_cut() const { return upload_.was_cut(); }

  // What is held is accounted for elsewhere from now on. REQUIRES: complete().
  void ReturnMemory() { upload_.memory().Return(); }

  // Ends a Fill() or Next() that waits for the client.
  void Stop() { upload_.Stop(); }
  // Frees what is held; connection.in is left at the first byte after the body.
  void Release();

 private:
  Task<End> ReadLength(uint64_t maximum);
  Buffer& LengthBuffer();
  void TakeLength(size_t read);

  Connection& connection_;
  BodyReader reader_;
  const BodyFraming framing_;
  const uint64_t content_length_;
  const size_t head_bytes_;
  size_t in_place_ = 0;  // body bytes that lie in connection.in behind the head
  BodyUpload upload_;
  Buffer held_;
  Buffer raw_;  // chunked bytes not decoded yet, or the window of a stream
  std::string_view piece_;
  uint64_t bytes_ = 0;
  uint64_t handed_out_ = 0;  // bytes that were pieces
  bool keeps_pieces_ = false;
  bool filled_window_ = false;  // by the last read
  bool released_ = false;
};

}  // namespace vllm_router
