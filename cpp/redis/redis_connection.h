// RedisConnection: one connection to Redis on a loop, and the commands that wait for replies on it.
//
//   Open(): resolve, connect, TLS; AUTH, SELECT, CLIENT SETNAME, PING in one write
//   Serve():      Send(3 replies) Send(1 reply) ──▶ Redis ──▶ r r r r   replies come in the order of commands
//
// command_timeout_ms without a byte, while a reply is awaited, end the connection: all that follow it are late
// as well. So do bytes that are not RESP2, and replies beyond a limit. What waits then fails.
//
// Its coroutines keep it alive. What it does is reported to the pool. One thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/resolver.h"
#include "net/socket.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "redis/redis_pool.h"
#include "redis/redis_reply.h"
#include "redis/resp_reader.h"

namespace vllm_router {

// The replies of some commands. Unavailable: the connection failed; DeadlineExceeded: no reply in time;
// FailedPrecondition: what came is not RESP2; ResourceExhausted: they are beyond a limit, which says nothing against
// Redis; Aborted: those of commands before are. Errors that Redis replied are among the replies.
using RedisReplies = StatusOr<std::vector<RedisReply>>;
// Called once, on the loop's thread, never by the call that takes it.
using RedisDone = std::function<void(RedisReplies)>;
// To whom failed commands and errors that Redis replied are reported: the pool counts them, and may find that Redis is
// down; or the caller alone, of commands that Redis may refuse while it serves the others.
enum class RedisErrorsTo : uint8_t { kPool, kCaller };

class RedisConnection {
 public:
  static constexpr size_t kMaxOutstanding = 4'096;  // calls of Send()
  static constexpr size_t kMaxUnsentBytes = 1 << 20;
  static constexpr size_t kLargeReplyBytes = 256 * 1024;

  // All outlive it.
  RedisConnection(RedisPool& pool, EventLoop& loop, BufferPool& buffers, Resolver& resolver);
  ~RedisConnection();
  RedisConnection(const RedisConnection&) = delete;
  RedisConnection& operator=(const RedisConnection&) = delete;

  // `probe`: also SET, GET and DEL of the pool's probe key.
  static Task<Status> Open(std::shared_ptr<RedisConnection> self, bool probe);
  // After Open(): reads replies until the connection ends. Why it ended.
  static Task<Status> Serve(std::shared_ptr<RedisConnection> self);

  bool may_send() const {
    return open_ && !retired_ && waiting_.size() < kMaxOutstanding && unsent_.size() < kMaxUnsentBytes;
  }
  size_t outstanding() const { return waiting_.size(); }
  // A large reply is arriving, and others would come behind it.
  bool is_amid_large_reply() const { return reader_.reply_bytes() > kLargeReplyBytes; }
  // `commands` has `replies` replies. REQUIRES: may_send().
  void Send(
      std::string_view commands, size_t replies, RedisDone done,
      RedisErrorsTo errors_to = RedisErrorsTo::kPool);
  // Ends it in a later turn of the loop; the first reason counts.
  void Close(Status why);
  // Ends it, if it is open, once what waits has its replies; until then it takes no commands.
  void Retire();
  bool is_retired() const { return retired_; }

 private:
  struct Waiting {
    size_t missing;
    int64_t sent_ns;
    std::vector<RedisReply> replies;
    RedisDone done;
    RedisErrorsTo errors_to;
  };

  Task<Status> Connect();
  Task<Status> LogIn(bool probe);
  Task<Status> Read(std::vector<RedisReply>* replies);
  static Task<void> Write(std::shared_ptr<RedisConnection> self);
  Status Take(std::vector<RedisReply>* replies);
  void ArmTimer();
  static void OnTimeout(void* connection);

  RedisPool& pool_;
  EventLoop& loop_;
  Resolver& resolver_;
  Buffer in_;
  RespReader reader_;
  Socket socket_;
  std::weak_ptr<RedisConnection> self_;
  std::shared_ptr<Resolver::Waiter> name_;  // being resolved
  Connector* connector_ = nullptr;          // while it connects
  bool open_ = false;
  bool retired_ = false;
  bool writing_ = false;
  std::string unsent_;
  std::deque<Waiting> waiting_;
  Status ended_;  // not ok: why it is closed
  Timer timer_;
};

}  // namespace vllm_router
