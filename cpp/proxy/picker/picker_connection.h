// PickerConnection: one connection of a data plane, from accept to close: its calls of ExternalProcessor, each of which is a
// PickedRequest, and those of the health service. It owns itself until it is closed.
//
//   socket ──▶ GrpcConnection ──▶ PickedRequest, …      what these write goes back the same way, in one piece for each turn
//
// A call whose data plane does not read gives no credit for more while a megabyte waits for it, and holds the memory of its
// body meanwhile. It ends once nothing of it was read for client_write_timeout_ms, as does one with a message that is not
// complete after client_body_timeout_ms; either may take twice the time, since all calls are looked at together. One thread.
#pragma once

#include <atomic>
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
  static constexpr size_t kMaxConnections = 1024;  // of gateways
  static constexpr size_t kMaxProbes = 64;         // connections to the port of the health service

  IoThread& thread;
  const ExtProcOptions& options;
  PickerCounts& counts;
  // The state of a service, by its name in calls of the health service; nullopt: there is none of that name.
  std::function<std::optional<ServingStatus>(std::string_view service)> state_of;
  std::unordered_set<class PickerConnection*> connections = {};
  size_t probes = 0;            // of `connections`
  int64_t next_warning_ns = 0;  // of connections that are refused
  bool draining = false;
  bool stopping = false;
};

class PickerConnection final : public PickedRequest::Peer {
 public:
  // `picks`: it serves ExternalProcessor too, not the health service alone.
  static void Serve(PickerThread& picker, Socket socket, Endpoint peer, bool picks);
  ~PickerConnection();

  // Requests that do not wait for this router go on without it from now on, the others once they have what they wait for; then
  // the connection ends. Not for the health service's own port.
  void Drain();
  // Those that still wait end: without a worker they are rejected, and amid a body they fail (kUnavailable), for the data plane
  // would take a good end for that of the body.
  void Stop();

 private:
  PickerConnection(PickerThread& picker, Socket socket, Endpoint peer, bool picks);
  static bool Admit(PickerThread& picker, bool picks);
  void Send(int32_t stream, std::string message) override;
  void Finish(int32_t stream, GrpcCode code, std::string_view text) override;
  bool is_behind(int32_t stream) const override { return paused_.contains(stream); }

  Task<void> Run();
  Task<bool> AgreeOnTls();
  Task<bool> WriteAllThatWaits();
  void TakeEvents();
  void Take(GrpcEvent& event);
  void Open(const GrpcEvent& event);
  void RespondToHealth(int32_t stream, std::string_view message);
  std::atomic<int64_t>& CountOfKind() const;
  void EndUnawaited();
  void EndRequest(int32_t stream, PickedRequest::Ending ending);
  void Wake();
  void ArmStallTimers();
  static void OnTimeout(void* connection);
  static void OnWriteCheck(void* connection);
  static void OnReadCheck(void* connection);

  PickerThread& picker_;
  Socket socket_;
  const Endpoint peer_;
  const bool picks_;
  GrpcConnection grpc_;
  Buffer in_;
  std::string out_;
  std::unordered_map<int32_t, std::shared_ptr<PickedRequest>> requests_;
  std::unordered_map<int32_t, std::string> health_calls_;  // methods of those without a message yet
  std::unordered_map<int32_t, std::shared_ptr<PickedRequest>> paused_;  // null: no request
  bool must_write_ = true;                                              // the settings of HTTP/2 come first
  bool writing_ = false;
  Timer timer_;
  Timer write_timer_;  // of calls that stand still
  Timer read_timer_;
};

}  // namespace vllm_router
