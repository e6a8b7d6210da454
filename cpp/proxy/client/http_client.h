// HttpClient: the router's own small requests to workers, response included: health checks, the merged
// model list, and other things that only a worker knows.
//
//   StatusOr<HttpResponse> models = co_await io_thread.http.Get(nullptr, worker.url, "/v1/models", 5'000);
//
// It never touches load, request metrics or the connection pool: each request has a connection of its
// own. One thread.
//
// Work for a client, which may leave, runs in a CancelScope (cancel_scope.h), whose Cancel() ends its requests at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/status.h"
#include "http/head.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/resolver.h"
#include "net/task.h"
#include "proxy/client/cancel_scope.h"
#include "worker/worker_url.h"

namespace vllm_router {

class TlsFiles;

struct HttpResponse {
  int status = 0;
  std::string body;
};

// It came, and is good: what a health check has to be.
inline bool IsSuccess(const StatusOr<HttpResponse>& response) {
  return response.ok() && response->status >= 200 && response->status < 300;
}

// What reads a response while it arrives. Not called after it has returned false.
class ResponseSink {
 public:
  virtual bool OnHead(const ResponseHead& head) = 0;    // the final one
  virtual bool OnData(std::string_view body_data) = 0;  // without its framing; not empty

 protected:
  ~ResponseSink() = default;
};

class HttpClient {
 public:
  // The arguments are the thread's and outlive this. `bearer`: "Bearer …" for workers, or empty;
  // `hop_name`: the server's, in Via.
  HttpClient(
      EventLoop& loop, BufferPool& buffers, Resolver& resolver, TlsFiles& tls, const std::string& bearer,
      const std::string& hop_name)
      : loop_(loop),
        buffers_(buffers),
        resolver_(resolver),
        tls_(tls),
        bearer_(bearer),
        hop_name_(hop_name) {}

  static constexpr size_t kMaxBodyBytes = size_t{8} << 20;

  // How much of a response to wait for: all of it, or the status only.
  enum class Part : uint8_t { kWhole, kStatus };

  // Sends the workers' key if `url` receives it. Unavailable if the connection fails or breaks;
  // DeadlineExceeded without a response in time; NotFound for a name without addresses;
  // FailedPrecondition for a response that is not HTTP; ResourceExhausted for a body longer than
  // `max_body_bytes`. Parameters by value: the task outlives its caller's temporaries. `scope` may be null.
  Task<StatusOr<HttpResponse>> Get(
      CancelScope* scope, WorkerUrl url, std::string target, int64_t timeout_ms,
      size_t max_body_bytes = kMaxBodyBytes);

  // The same with these lines of a head, which are a client's credentials, unless `url` receives the workers' key.
  Task<StatusOr<HttpResponse>> GetWith(
      std::string credentials, CancelScope* scope, WorkerUrl url, std::string target, int64_t timeout_ms,
      size_t max_body_bytes = kMaxBodyBytes);

  // The same from an external service, with `key` instead of the workers'; verified against the system
  // CAs. The response is read by `sink`.
  Task<Status> GetExternal(
      CancelScope* scope, WorkerUrl url, std::string target, std::string key, int64_t timeout_ms,
      ResponseSink* sink);

  // The same with a JSON body.
  Task<StatusOr<HttpResponse>> Post(
      CancelScope* scope, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms,
      size_t max_body_bytes = kMaxBodyBytes);

  // The same with a client's credentials, as GetWith().
  Task<StatusOr<HttpResponse>> PostWith(
      std::string credentials, CancelScope* scope, WorkerUrl url, std::string target, std::string json,
      int64_t timeout_ms, size_t max_body_bytes = kMaxBodyBytes);

  // The same with this Authorization instead of the workers' key, unless it is empty.
  Task<StatusOr<HttpResponse>> PostAs(
      std::string authorization, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms);

  // Sends a request whose head is already written. `body` outlives the task.
  Task<StatusOr<HttpResponse>> Send(
      CancelScope* scope, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
      Part part = Part::kWhole);

  // The same to an external service, verified against the system CAs; the response is read by `sink`.
  Task<Status> SendExternal(
      WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms, ResponseSink* sink);

  // The same, read by `sink` while it arrives, however long it is, until the sink has had enough or no byte
  // arrives for `idle_ms`. `accept`: the media type. `last_event_id` may be empty.
  Task<Status> Stream(
      CancelScope* scope, WorkerUrl url, std::string target, std::string_view accept,
      std::string last_event_id, int64_t idle_ms, ResponseSink* sink);

  // What requests to a worker carry of the workers' key.
  enum class KeyUse : uint8_t { kSent, kNone, kWithheld };
  KeyUse KeyUseFor(const WorkerUrl& url) const {
    if (bearer_.empty()) return KeyUse::kNone;
    return url.receives_api_key ? KeyUse::kSent : KeyUse::kWithheld;
  }

  // Ends all requests in flight, so that a stopping server need not wait for their deadlines; later ones
  // fail at once.
  void Stop();
  bool stopped() const { return stopped_; }

  EventLoop& loop() { return loop_; }

 private:
  struct Call;

  std::string WriteHead(
      const CancelScope* scope, const WorkerUrl& url, std::string_view method, std::string_view target,
      std::string_view authorization, std::optional<size_t> json_bytes,
      std::string_view accept = "*/*") const;
  std::string_view AuthorizationFor(const WorkerUrl& url) const;
  // Until the sink has had enough or the response has ended.
  Task<Status> Read(
      Call& call, const WorkerUrl& url, std::string_view head, std::string_view body, bool external,
      ResponseSink& sink);
  Task<StatusOr<HttpResponse>> Run(
      CancelScope* scope, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
      bool external, Part part, size_t max_body_bytes = kMaxBodyBytes);

  EventLoop& loop_;
  BufferPool& buffers_;
  Resolver& resolver_;
  TlsFiles& tls_;
  const std::string& bearer_;
  const std::string& hop_name_;
  std::unordered_set<Call*> calls_;  // in flight
  bool stopped_ = false;
};

}  // namespace vllm_router
