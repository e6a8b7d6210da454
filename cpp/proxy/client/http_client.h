// HttpClient: small requests of our own to workers, response and all: for health checks, the merged model list, and what
// else only a worker knows.
//
//   StatusOr<HttpResponse> models = co_await io_thread.http.Get(nullptr, worker.url, "/v1/models", 5'000);
//
// Never touches load, metrics of requests, or the pool of connections: each request has a connection of its own. One thread.
//
// What is done for a client, which may leave, is done in a CancelScope: it knows its requests and its pause, and Cancel()
// ends them at once.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>

#include "base/status.h"
#include "net/buffer.h"
#include "net/event_loop.h"
#include "net/resolver.h"
#include "net/task.h"
#include "worker/worker_url.h"

namespace vllm_router {

class TlsFiles;

class CancelScope {
 public:
  // `via`: of the request that it is done for; requests in the scope carry it on. Must outlive it.
  explicit CancelScope(std::span<const std::string_view> via) : via_(via) {}
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  void Cancel();  // its coroutine goes on in a later turn of the loop
  bool cancelled() const { return cancelled_; }
  std::span<const std::string_view> via() const { return via_; }

  // Another one that is part of this one and is cancelled with it; null when it has ended.
  void set_inner(CancelScope* inner) { inner_ = inner; }

  // It may take minutes, so a server that stops does not wait for it.
  void set_long() { long_ = true; }
  bool is_long() const { return long_; }

  // False when it is cancelled, before or meanwhile.
  Task<bool> Pause(EventLoop& loop, int64_t nanos);
  void EndPause();  // before its time; likewise in a later turn

 private:
  friend class HttpClient;
  struct Call;
  const std::span<const std::string_view> via_;
  bool cancelled_ = false;
  bool long_ = false;
  std::unordered_set<Call*> calls_;
  Delay* pause_ = nullptr;
  CancelScope* inner_ = nullptr;
};

struct HttpResponse {
  int status = 0;
  std::string body;
};

class HttpClient {
 public:
  // Of the thread, all outliving this. `bearer`: "Bearer …" for workers, or empty; `hop_name`: the server's, in Via.
  HttpClient(
      EventLoop& loop, BufferPool& buffers, Resolver& resolver, TlsFiles& tls, const std::string& bearer,
      const std::string& hop_name)
      : loop_(loop),
        buffers_(buffers),
        resolver_(resolver),
        tls_(tls),
        bearer_(bearer),
        hop_name_(hop_name) {}

  // How much of a response is awaited: all of it, or its status, where no more is of use.
  enum class Part : uint8_t { kWhole, kStatus };

  // With the workers' key if `url` receives it. Unavailable where there is no connection or it breaks, DeadlineExceeded
  // where no response comes in time, NotFound for a name without addresses, FailedPrecondition for a response that is not
  // HTTP or longer than 8 MiB. Parameters by value: the task outlives its caller's temporaries. `scope` may be null.
  Task<StatusOr<HttpResponse>> Get(CancelScope* scope, WorkerUrl url, std::string target, int64_t timeout_ms);

  // The same from a service that is no worker, with `key` instead of the workers'; its certificate comes from an authority
  // that the system trusts.
  Task<StatusOr<HttpResponse>> GetExternal(
      CancelScope* scope, WorkerUrl url, std::string target, std::string key, int64_t timeout_ms);

  // The same with a JSON body.
  Task<StatusOr<HttpResponse>> Post(
      CancelScope* scope, WorkerUrl url, std::string target, std::string json, int64_t timeout_ms);

  // A request whose head is written already. `body` outlives the task.
  Task<StatusOr<HttpResponse>> Send(
      CancelScope* scope, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
      Part part = Part::kWhole);

  // Ends all requests under way, so that a server that stops need not wait for their deadlines; later ones fail at once.
  void Stop();
  bool stopped() const { return stopped_; }

  EventLoop& loop() { return loop_; }

 private:
  friend class CancelScope;
  using Call = CancelScope::Call;

  std::string WriteHead(
      const CancelScope* scope, const WorkerUrl& url, std::string_view method, std::string_view target,
      std::string_view authorization, std::optional<size_t> json_bytes) const;
  std::string_view AuthorizationFor(const WorkerUrl& url) const;
  Task<StatusOr<HttpResponse>> Run(
      CancelScope* scope, WorkerUrl url, std::string head, std::string_view body, int64_t timeout_ms,
      bool external, Part part);

  EventLoop& loop_;
  BufferPool& buffers_;
  Resolver& resolver_;
  TlsFiles& tls_;
  const std::string& bearer_;
  const std::string& hop_name_;
  std::unordered_set<Call*> calls_;  // under way
  bool stopped_ = false;
};

}  // namespace vllm_router
