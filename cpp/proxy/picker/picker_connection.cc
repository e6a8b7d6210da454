#include "proxy/picker/picker_connection.h"

#include <span>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/text.h"
#include "net/tls.h"
#include "proxy/api/settings.h"
#include "proxy/client/tls_files.h"
#include "proxy/telemetry/telemetry.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr std::string_view kProcessPath = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
constexpr int64_t kWarningNanos = 10'000'000'000;  // from one to the next
constexpr size_t kWritePiece = 256 * 1024;
constexpr size_t kReadRoom = 64 * 1024;
constexpr size_t kMaxUnsent = 1024 * 1024;  // of a call, before it is paused

}  // namespace

PickerConnection::PickerConnection(PickerThread& picker, Socket socket, Endpoint peer, bool picks)
    : picker_(picker),
      socket_(std::move(socket)),
      peer_(std::move(peer)),
      picks_(picks),
      in_(picker.thread.buffers) {
  picker_.connections.insert(this);
  if (!picks_) ++picker_.probes;
  CountOfKind().fetch_add(1, std::memory_order_relaxed);
}

PickerConnection::~PickerConnection() {
  picker_.connections.erase(this);
  if (!picks_) --picker_.probes;
  CountOfKind().fetch_sub(1, std::memory_order_release);
}

std::atomic<int64_t>& PickerConnection::CountOfKind() const {
  return picks_ ? picker_.counts.connections : picker_.counts.probes;
}

// False: there are too many of this kind.
bool PickerConnection::Admit(PickerThread& picker, bool picks) {
  const size_t open = picks ? picker.connections.size() - picker.probes : picker.probes;
  const size_t most = picks ? PickerThread::kMaxConnections : PickerThread::kMaxProbes;
  if (open < most) return true;
  picker.counts.refused.fetch_add(1, std::memory_order_relaxed);
  const int64_t now = picker.thread.clock.NowNanos();
  if (now < picker.next_warning_ns) return false;
  picker.next_warning_ns = now + kWarningNanos;
  Log(LogLevel::kWarning, Concat(
                              "a connection to the endpoint picker's ", picks ? "port" : "health port",
                              " is closed, since a thread has ", open,
                              " of them, the maximum (epp_connections_refused_total counts them)"));
  return false;
}

void PickerConnection::Serve(PickerThread& picker, Socket socket, Endpoint peer, bool picks) {
  if (picker.stopping || (picks && picker.draining)) return;
  if (!Admit(picker, picks)) return;
  auto* const connection = new PickerConnection(picker, std::move(socket), std::move(peer), picks);
  Spawn([](std::unique_ptr<PickerConnection> owned) -> Task<void> {
    co_await owned->Run();
  }(std::unique_ptr<PickerConnection>(connection)));
}

// False: they do not agree, or the peer sent nothing. The health service of its own port is plain, for probes know no TLS.
Task<bool> PickerConnection::AgreeOnTls() {
  std::shared_ptr<const TlsContext> tls = picks_ ? picker_.thread.tls.gateways() : nullptr;
  if (tls == nullptr) co_return true;
  socket_.StartTls(std::move(tls));
  const bool agreed = co_await socket_.Handshake();
  if (!agreed) picker_.thread.telemetry.connections.tls_failures.fetch_add(1, std::memory_order_relaxed);
  co_return agreed;
}

// A peer that does not begin as a client of HTTP/2 is no data plane.
Task<void> PickerConnection::Run() {
  EventLoop& loop = picker_.thread.loop;
  timer_.Arm(
      loop.timers(), picker_.thread.settings.Get()->client_head_timeout_ms, &PickerConnection::OnTimeout,
      this);
  const bool agreed = co_await AgreeOnTls();
  while (agreed) {
    const bool written = co_await WriteAllThatWaits();
    if (!written || grpc_.ended()) break;
    in_.Reserve(kReadRoom);
    const IoResult read = socket_.TryRead(in_.room());
    if (read.would_block()) {
      in_.Release();
      // False may also be a call that has something to write.
      co_await socket_.Readable();
      if (!socket_.is_open()) break;
      continue;
    }
    if (!read.ok()) break;
    const Status fed = grpc_.Feed({in_.data(), static_cast<size_t>(read.bytes)});
    if (grpc_.greeted()) timer_.Disarm();
    TakeEvents();
    must_write_ = true;
    if (fed.ok()) {
      if (static_cast<size_t>(read.bytes) >= kReadRoom) co_await loop.Yield();
      continue;
    }
    picker_.counts.protocol_errors.fetch_add(1, std::memory_order_relaxed);
    co_await WriteAllThatWaits();
    break;
  }
  socket_.Close();
  timer_.Disarm();
  write_timer_.Disarm();
  read_timer_.Disarm();
  paused_.clear();
  // None of them waits for this connection any more.
  for (auto& [stream, request] : std::exchange(requests_, {})) {
    request->End(picker_.stopping ? PickedRequest::Ending::kShutdown : PickedRequest::Ending::kBroken);
  }
}

// False: the connection is lost.
Task<bool> PickerConnection::WriteAllThatWaits() {
  while (must_write_) {
    must_write_ = false;
    if (picker_.draining && picks_) EndUnawaited();
    out_.clear();
    const bool more = grpc_.Write(&out_, kWritePiece);
    TakeEvents();
    if (more) must_write_ = true;
    if (out_.empty()) break;
    iovec piece = Piece(out_);
    Timer timer;
    WriteStall stall{
        .loop = picker_.thread.loop,
        .timer = timer,
        .timeout_ms = picker_.thread.settings.Get()->client_write_timeout_ms,
        .callback = &PickerConnection::OnTimeout,
        .context = this};
    writing_ = true;
    const std::span<iovec> pieces(&piece, 1);
    const WriteEnd end = co_await WriteAll(socket_, pieces, &stall);
    writing_ = false;
    if (end != WriteEnd::kAll) co_return false;
  }
  std::erase_if(paused_, [this](const auto& entry) {
    const auto& [stream, request] = entry;
    if (grpc_.unsent_bytes(stream) > kMaxUnsent) return false;
    grpc_.SetPaused(stream, false);
    if (request != nullptr) request->CatchUp();
    must_write_ = true;
    return true;
  });
  if (must_write_) {
    const bool written = co_await WriteAllThatWaits();
    co_return written;
  }
  co_return true;
}

void PickerConnection::TakeEvents() {
  for (GrpcEvent& event : grpc_.TakeEvents()) Take(event);
}

void PickerConnection::Take(GrpcEvent& event) {
  switch (event.kind) {
    case GrpcEvent::Kind::kOpened:
      return Open(event);
    case GrpcEvent::Kind::kMessage: {
      if (health_calls_.contains(event.stream)) return RespondToHealth(event.stream, event.message);
      const auto found = requests_.find(event.stream);
      if (found == requests_.end()) return;
      const std::shared_ptr<PickedRequest> request = found->second;  // it may end meanwhile
      return request->Take(std::move(event.message));
    }
    case GrpcEvent::Kind::kHalfClosed:
      if (health_calls_.erase(event.stream) != 0)
        grpc_.Finish(event.stream, GrpcCode::kInvalidArgument, "the call has no message");
      EndRequest(event.stream, PickedRequest::Ending::kDone);
      return;
    case GrpcEvent::Kind::kReset:
      if (event.code != GrpcCode::kCancelled)
        picker_.counts.protocol_errors.fetch_add(1, std::memory_order_relaxed);
      health_calls_.erase(event.stream);
      EndRequest(event.stream, PickedRequest::Ending::kBroken);
      return;
  }
}

void PickerConnection::Open(const GrpcEvent& event) {
  ArmStallTimers();
  if (event.path == kProcessPath && picks_) {
    requests_.emplace(
        event.stream,
        std::make_shared<PickedRequest>(
            picker_.thread, picker_.options, picker_.counts, *this, event.stream, peer_.address));
  } else if (event.path.starts_with(kHealthServicePath)) {
    health_calls_.emplace(event.stream, event.path.substr(kHealthServicePath.size()));
  } else {
    grpc_.Finish(event.stream, GrpcCode::kUnimplemented, "this port serves no such method");
  }
}

void PickerConnection::RespondToHealth(int32_t stream, std::string_view message) {
  const HealthReply reply = RespondToHealthCall(health_calls_.at(stream), message, picker_.state_of);
  health_calls_.erase(stream);
  if (reply.code == GrpcCode::kOk) grpc_.Send(stream, reply.message);
  grpc_.Finish(stream, reply.code, reply.text);
}

void PickerConnection::EndRequest(int32_t stream, PickedRequest::Ending ending) {
  const auto found = requests_.find(stream);
  if (found == requests_.end()) return;
  const std::shared_ptr<PickedRequest> request = std::move(found->second);
  requests_.erase(found);
  const bool is_cut =
      ending == PickedRequest::Ending::kShutdown && request->awaited() == PickedRequest::Awaited::kBody;
  request->End(ending);
  if (ending == PickedRequest::Ending::kBroken) {
    paused_.erase(stream);
  } else if (is_cut) {
    grpc_.Finish(stream, GrpcCode::kUnavailable, "the router stops, and sends back no more of the body");
  } else {
    grpc_.Finish(stream, GrpcCode::kOk);
  }
}

void PickerConnection::Drain() {
  if (!picks_) return;
  if (timer_.armed()) return socket_.Close();  // it has not begun
  grpc_.Close();
  Wake();
}

void PickerConnection::EndUnawaited() {
  std::vector<int32_t> streams;
  for (const auto& [stream, request] : requests_) {
    if (request->awaited() == PickedRequest::Awaited::kNothing) streams.push_back(stream);
  }
  for (const int32_t stream : streams) EndRequest(stream, PickedRequest::Ending::kShutdown);
}

void PickerConnection::Stop() {
  grpc_.Close();
  std::vector<int32_t> streams;
  for (const auto& [stream, request] : requests_) streams.push_back(stream);
  for (const int32_t stream : streams) EndRequest(stream, PickedRequest::Ending::kShutdown);
  Wake();
}

void PickerConnection::Send(int32_t stream, std::string message) {
  grpc_.Send(stream, std::move(message));
  if (grpc_.unsent_bytes(stream) > kMaxUnsent && !paused_.contains(stream)) {
    const auto found = requests_.find(stream);
    paused_.emplace(stream, found == requests_.end() ? nullptr : found->second);
    grpc_.SetPaused(stream, true);
  }
  Wake();
}

void PickerConnection::Finish(int32_t stream, GrpcCode code, std::string_view text) {
  grpc_.Finish(stream, code, text);
  requests_.erase(stream);
  Wake();
}

void PickerConnection::Wake() {
  must_write_ = true;
  if (!writing_) socket_.InterruptRead();
}

// While there are calls.
void PickerConnection::ArmStallTimers() {
  TimerWheel& timers = picker_.thread.loop.timers();
  const std::shared_ptr<const Settings> settings = picker_.thread.settings.Get();
  if (!write_timer_.armed())
    write_timer_.Arm(timers, settings->client_write_timeout_ms, &PickerConnection::OnWriteCheck, this);
  if (!read_timer_.armed())
    read_timer_.Arm(timers, settings->client_body_timeout_ms, &PickerConnection::OnReadCheck, this);
}

void PickerConnection::OnWriteCheck(void* connection) {
  auto& self = *static_cast<PickerConnection*>(connection);
  self.grpc_.EndStalledWrites();
  self.TakeEvents();
  if (self.grpc_.streams() != 0) self.ArmStallTimers();
  self.Wake();
}

void PickerConnection::OnReadCheck(void* connection) {
  auto& self = *static_cast<PickerConnection*>(connection);
  self.grpc_.EndStalledReads();
  self.TakeEvents();
  if (self.grpc_.streams() != 0) self.ArmStallTimers();
  self.Wake();
}

void PickerConnection::OnTimeout(void* connection) {
  static_cast<PickerConnection*>(connection)->socket_.Close();
}

}  // namespace vllm_router
