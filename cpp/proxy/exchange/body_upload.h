// BodyUpload: how the bytes of a request body come from the client, and the memory that holds them. It waits for either,
// as long as the client may take.
//
//   end = co_await upload.Read(buffer, maximum, left);   // once; waits if nothing has come
//   end = co_await upload.TakeMemory(bytes, need);       // kOk: memory().held() is at least `bytes`
//   upload.Stop();                                       // ends both
//
// While the router waits for it, a client must send at --client-min-body-rate (body_pace.h). An upload
// that is slower for a second may be cut if others wait for its memory or permit (slow_uploads.h).
// Belongs to one RequestBody, which says what is read, and where to. One thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "net/buffer.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "proxy/exchange/body_pace.h"
#include "proxy/thread/body_claim.h"
#include "proxy/thread/slow_uploads.h"

namespace vllm_router {

class Connection;

enum class BodyEnd : uint8_t {
  kOk,  // what was requested is there
  kClientGone,
  kTimeout,
  kTooSlow,
  kBadChunk,
  kTooLarge,
  kNoMemory,  // not within the maximum wait
  kStopped,   // Stop() was called
};

class BodyUpload {
 public:
  using End = BodyEnd;

  explicit BodyUpload(Connection& connection);
  BodyUpload(const BodyUpload&) = delete;
  BodyUpload& operator=(const BodyUpload&) = delete;

  // Reads once, waiting for the client if needed. `maximum` limits what is taken from the socket; `left` bytes complete
  // the body.
  Task<End> Read(Buffer& into, size_t maximum, uint64_t left);
  // REQUIRES: memory().held() < bytes <= need.
  Task<End> TakeMemory(uint64_t bytes, uint64_t need);
  BodyClaim& memory() { return memory_; }

  // The body is sent on as it comes: the request has its permit, which it holds while the client is waited for.
  void BeginStreaming() { streams_ = true; }
  // Ends a wait, now or later, with kStopped; waits are possible again.
  void Stop();
  void Resume() { stopped_ = false; }
  // Whether kTooSlow is because others waited for what it held.
  bool was_cut() const { return cut_; }
  // Nothing more comes, and nothing is held any more. Once.
  void Finish();

 private:
  SlowUploads* WhereSlow() const;
  Task<End> WaitForClient();
  void ArmTimer(int64_t left_ns);
  static void OnTimer(void* upload);
  static void OnCut(void* upload);
  static void OnClientEnded(void* upload);

  Connection& connection_;
  BodyClaim memory_;
  BodyPace pace_;
  size_t bytes_since_yield_ = 0;  // read since other work had its turn
  bool streams_ = false;
  bool client_ended_ = false;
  bool timer_fired_ = false;
  bool cut_ = false;
  bool stopped_ = false;
  Timer timer_;
};

}  // namespace vllm_router
