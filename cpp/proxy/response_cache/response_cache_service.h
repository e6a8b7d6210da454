// ResponseCacheService: what routers that share cached responses in a Redis do beside requests.
//
//   each second      the generations (response_cache/generations.h): increments go to the hash <prefix>~gen and its fields come
//                    back, so an invalidation at one router is known to all within a second
//   Redis comes up   the same, then the responses kept meanwhile are dropped, and only then do stores use Redis
//   Clear()          a new generation for all, then the keys of responses are deleted; they are of no use any more
//   each minute      the keys are counted, in a second at most, if somebody reads the count
//
// Routers write the hash at the same time. HINCRBY loses no increment of any. A counter that Redis has lost is put back by
// HSETNX if it is gone, so that one of those who see it does so, and by HINCRBY of what is missing if it is lower: several
// may do this, which invalidates once more than needed. A script could do better; Redis may forbid its users scripts.
//
// Deleted is only what is named as responses are, since other programs' keys may begin alike. On the control thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "net/event_loop.h"
#include "net/task.h"
#include "proxy/client/http_client.h"
#include "proxy/control/service.h"
#include "proxy/response_cache/redis_response_store.h"
#include "redis/redis_link.h"
#include "response_cache/generations.h"

namespace vllm_router {

class ResponseCacheService final : public Service {
 public:
  static constexpr int64_t kTurnNanos = 1'000'000'000;
  static constexpr int64_t kLookNanos = 50'000'000;  // while no connection takes commands
  static constexpr int64_t kClearNanos = 30'000'000'000;
  static constexpr int64_t kCountNanos = 1'000'000'000;
  static constexpr int64_t kRecountNanos = 60'000'000'000;
  static constexpr int64_t kPageNanos = 1'000'000;  // at least, from one page to the next: 1,000 a second
  static constexpr std::string_view kPageKeys = "512";

  // All outlive it. `link`: the control thread's. `on_recovered`: Redis is used from now on, so what was kept instead is
  // to be dropped; also at the start.
  ResponseCacheService(
      RedisLink& link, Generations& generations, RedisResponses& responses,
      std::function<void()> on_recovered);

  void Start() override;
  void Stop() override;  // the link stops as well
  bool ended() const override { return !runs_ && under_way_ == 0; }
  void AddConditions(const AddCondition& add) const override;

  // Any thread: a generation was bumped; Redis is told at once.
  void Tell();

  // Whether Redis has all that was invalidated here before the call; it ends with the next turn.
  Task<bool> Told();

  // Responses of before are not found any more, here at once. The number of keys that were deleted; 0 if another call
  // deletes them. Unavailable: Redis is told when it is back. `scope` may be null.
  Task<StatusOr<int64_t>> Clear(CancelScope* scope);

  // Any thread: responses in Redis when they were counted last; nullopt: never, or there are too many to be counted.
  std::optional<int64_t> entries();

 private:
  struct Waiter {
    Signal done;
    bool worked = false;
  };
  enum class Use : uint8_t { kCount, kDelete };
  struct Scan {
    int64_t keys = 0;
    bool whole = false;
    Status status;
  };

  class UnderWay {
   public:
    explicit UnderWay(ResponseCacheService& service) : service_(service) { ++service_.under_way_; }
    ~UnderWay() { --service_.under_way_; }
    UnderWay(const UnderWay&) = delete;
    UnderWay& operator=(const UnderWay&) = delete;

   private:
    ResponseCacheService& service_;
  };

  Task<void> Run();
  // Increments to Redis, and what it has back. Whether the generations are those of all routers now.
  Task<bool> Exchange();
  bool TakeReplies(
      const std::vector<Generations::Increment>& sent, const RedisReplies& replies,
      std::vector<Generations::Repair>* repairs);
  Task<void> RepairLoss(std::vector<Generations::Repair> repairs);
  Task<void> CountKeys();
  Task<Scan> ScanKeys(Use use, int64_t nanos, CancelScope* scope);
  Task<bool> DeleteKeys(std::vector<std::string> keys, Scan* scan);
  // False: Redis could not be asked.
  Task<bool> NextTurn();
  // An error, if it is none of the connection's.
  Status Checked(std::string_view command, const std::optional<RedisReplies>& replies) const;
  void Warn(std::string_view what);
  int64_t Now() const { return link_.pool().clock().NowNanos(); }

  RedisLink& link_;
  Generations& generations_;
  RedisResponses& responses_;
  const std::function<void()> on_recovered_;
  Delay delay_;
  bool runs_ = false;
  bool stopped_ = false;
  bool told_ = false;      // there is something for Redis
  bool clearing_ = false;  // keys are being deleted
  int under_way_ = 0;
  std::vector<Waiter*> waiters_;  // for the next whole Exchange()
  int64_t counted_ns_;
  int64_t warned_ns_;
  std::atomic<bool> count_wanted_{true};
  std::atomic<int64_t> entries_{-1};
};

}  // namespace vllm_router
