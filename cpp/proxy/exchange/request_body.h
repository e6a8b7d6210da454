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
// While the router waits for it, a client must send at --client-min-body-rate (body_pace.h). An upload
// that is slower for a second may be cut if others wait for its memory or permit (slow_uploads.h).
// Belongs to one exchange.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "http/body_reader.h"
#include "net/buffer.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/api/error_response.h"
#include "proxy/exchange/body_pace.h"
#include "proxy/thread/body_claim.h"
#include "proxy/thread/slow_uploads.h"

namespace vllm_router {

class Connection;

class RequestBody {
 public:
  enum class End : uint8_t {
    kOk,  // what was requested is there
    kClientGone,
    kTimeout,
    kTooSlow,
    kBadChunk,
    kTooLarge,
    kNoMemory,  // not within the maximum wait
    kStopped,   // Stop() was called
  };

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
  bool was_cut() const { return cut_; }

  // What is held is accounted for elsewhere from now on. REQUIRES: complete().
  void ReturnMemory() { memory_.Return(); }

  // Ends a Fill() or Next() that waits for the client.
  void Stop();
  // Frees what is held; connection.in is left at the first byte after the body.
  void Release();

 private:
  Task<End> TakeMemory(uint64_t bytes, uint64_t need);
  Task<End> ReadMore(Buffer& into, size_t maximum, uint64_t left);
  SlowUploads* WhereSlow() const;
  Task<End> WaitForClient();
  void ArmTimer(int64_t left_ns);
  Task<End> ReadLength(uint64_t maximum);
  Buffer& LengthBuffer();
  void TakeLength(size_t read);
  static void OnTimer(void* body);
  static void OnCut(void* body);
  static void OnClientEnded(void* body);

  Connection& connection_;
  BodyReader reader_;
  const BodyFraming framing_;
  const uint64_t content_length_;
  const size_t head_bytes_;
  size_t in_place_ = 0;  // body bytes that lie in connection.in behind the head
  BodyClaim memory_;
  BodyPace pace_;
  Buffer held_;
  Buffer raw_;  // chunked bytes not decoded yet, or the window of a stream
  std::string_view piece_;
  uint64_t bytes_ = 0;
  uint64_t handed_out_ = 0;  // bytes that were pieces
  size_t unshared_ = 0;      // bytes read since other work had its turn
  bool keeps_pieces_ = false;
  bool handing_out_ = false;  // Next() has been called: the request has its permit
  bool client_ended_ = false;
  bool brimful_ = false;  // the last read filled its window
  bool timer_fired_ = false;
  bool cut_ = false;
  bool stopped_ = false;
  bool released_ = false;
  Timer timer_;
};

}  // namespace vllm_router
