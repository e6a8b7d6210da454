// PickerConnection: one connection of a data plane, from accept to close: its calls of ExternalProcessor, each of which is a
// PickedRequest, and those of the health service. It owns itself until it is closed.
//
//   socket ──▶ GrpcConnection ──▶ PickedRequest, …      what these write goes back the same way, in one piece for each turn
//
// A call whose data plane does not read gives no credit for more while a megabyte waits for it. One thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "grpc/grpc_connection.h"
#include "grpc/health_check.h"
#include "net/buffer.h"
#include "net/socket.h"
#include "net/task.h"
#include "net/timer_wheel.h"
#include "net/write_all.h"
#include "picker/ext_proc_stream.h"
#include "proxy/picker/picked_request.h"
#include "proxy/picker/picker_counts.h"

namespace vllm_router {

struct IoThread;

// What the connections of one thread share.
struct PickerThread {
  static constexpr size_t kMaxConnections = 1024;

  IoThread& thread;
  const ExtProcOptions& options;
  PickerCounts& counts;
  // The state of a service, by its name in calls of the health service; nullopt: there is none of that name.
  std::function<std::optional<ServingStatus>(std::string_view service)> state_of;
  std::unordered_set<class PickerConnection*> connections = {};
  bool stopping = false;
};

class PickerConnection final : public PickedRequest::Peer {
 public:
  // `picks`: it serves ExternalProcessor too, not the health service alone.
  static void Serve(PickerThread& picker, Socket socket, Endpoint peer, bool picks);
  ~PickerConnection();

  // Requests without a worker are rejected, the others go on without this router; the connection ends.
  void Stop();

 private:
  PickerConnection(PickerThread& picker, Socket socket, Endpoint peer, bool picks);
  void Send(int32_t stream, std::string message) override;
  void Finish(int32_t stream, GrpcCode code, std::string_view text) override;

  Task<void> Run();
  Task<bool> AgreeOnTls();
  Task<bool> WriteAllThatWaits();
  void TakeEvents();
  void Take(GrpcEvent& event);
  void Open(const GrpcEvent& event);
  void RespondToHealth(int32_t stream, std::string_view message);
  void EndRequest(int32_t stream, PickedRequest::Ending ending);
  void Wake();
  static void OnTimeout(void* connection);

  PickerThread& picker_;
  Socket socket_;
  const Endpoint peer_;
  const bool picks_;
  GrpcConnection grpc_;
  Buffer in_;
  std::string out_;
  std::unordered_map<int32_t, std::shared_ptr<PickedRequest>> requests_;
  std::unordered_map<int32_t, std::string> health_calls_;  // methods of those without a message yet
  std::unordered_set<int32_t> paused_;
  bool must_write_ = true;  // the settings of HTTP/2 come first
  bool writing_ = false;
  Timer timer_;
};

}  // namespace vllm_router
