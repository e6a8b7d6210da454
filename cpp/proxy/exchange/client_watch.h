// ClientWatch: what a client does while its request is under way: it leaves, or sends its next requests.
//
//   Begin() … Stop()          both: bytes of its next requests are kept, until ReturnPipelined()
//   BeginEnd() … StopEnd()    its end alone, as its body has not been read
//
// A client that leaves cancels the exchange; behind the last event of its stream it leaves the worker a moment for what
// little that has to send. Belongs to a Downstream. One thread.
#pragma once

#include <memory>
#include <string>

namespace vllm_router {

struct Request;

class ClientWatch {
 public:
  explicit ClientWatch(Request& request) : request_(request) {}

  void Begin();
  void Stop();
  void BeginEnd();
  void StopEnd();
  // Bytes of its next requests, which have come meanwhile, are for its connection again.
  void ReturnPipelined();
  // It left behind the last event of its stream. `request`: a Request.
  static void OnLeft(void* request);

 private:
  static void OnReadable(void* watch);
  static void OnEnded(void* watch);

  Request& request_;
  std::unique_ptr<std::string> pipelined_;  // null: none
};

}  // namespace vllm_router
