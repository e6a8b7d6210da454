// PeerThread: the thread on which a router and others tell each other what they do, by what it has: the control thread of
// a server, or the one that JoinedPeers has. References; all outlive what uses them.
#pragma once

namespace vllm_router {

class BufferPool;
class Clock;
class EventLoop;
class Resolver;
class Router;

struct PeerThread {
  EventLoop& loop;
  BufferPool& buffers;
  Resolver& resolver;
  const Clock& clock;
  Router& router;
};

}  // namespace vllm_router
