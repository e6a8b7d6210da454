// PeerTopic: what a part of the router tells the other routers of its fleet with the frames of peer sync (peer_sync/frame.h),
// and hears from them, so that peer sync knows nothing of it.
//
//   others->AddTopic(topic)         before the threads run (proxy/control/other_routers.h)
//   topic.Turn(true, 3, now)        now and then: the routers hear each other, three with this one
//   topic.Tell(full, now)           each interval: the payload of its section in the next frame
//   topic.Hear(word, now)           what another router told, each word once and in its order; one may be lost
//
// A router that has no such topic, as an older version, skips the section. All calls are made by one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vllm_router {

// Bytes from outside: whoever may write where routers meet may have written it.
struct PeerWord {
  uint64_t router = 0;       // one life of a router
  uint32_t interval_ms = 0;  // of its frames
  int64_t told_ns = 0;       // by this router's clock, and not to come
  std::string_view payload;
};

class PeerTopic {
 public:
  static constexpr size_t kMaxBytes = 128 << 10;  // of a payload

  // 10 to 31; the list is in peer_sync/frame.h. It does not change.
  virtual uint8_t section() const = 0;
  // Empty: nothing now. `full`: with what was told before and still holds, for routers that missed it.
  virtual std::string Tell(bool full, int64_t now_ns) = 0;
  virtual void Hear(const PeerWord& word, int64_t now_ns) = 0;
  // `routers`: with this one; while they are not connected, those that were heard last.
  virtual void Turn(bool connected, uint32_t routers, int64_t now_ns) = 0;

 protected:
  ~PeerTopic() = default;
};

}  // namespace vllm_router
