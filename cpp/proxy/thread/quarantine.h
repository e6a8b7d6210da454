// How requests, workers and clients are named to the quarantine of requests (routing/request_quarantine.h), and what is
// told to it about workers. Any thread's thread; a relaxed load where nothing is pending.
#pragma once

#include <cstdint>
#include <string_view>

#include "http/head.h"
#include "routing/request_quarantine.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct IoThread;

// Equal for all ranks of a host, since they die together.
uint64_t HostNumber(const WorkerUrl& url);

// The client that a request is counted for, never 0: its API key where this router checks keys; else its address, which
// is the last one of X-Forwarded-For where --trust-forwarded says that a proxy has put it there.
uint64_t ClientNumber(const IoThread& thread, const RequestHead& head, std::string_view peer_address);

// A connect to the worker, or a health check of it, failed; it has responded, below 500, to what it was sent at `since_ns`.
void ReportWorkerDown(IoThread& thread, const WorkerUrl& url);
void ReportWorkerUp(IoThread& thread, const WorkerUrl& url, int64_t since_ns);
// What the request is known by: path and body. Where there is no body, all requests to one path would be one, so there the
// query and the client belong to it.
RequestDigest DigestOf(
    const IoThread& thread, const RequestHead& head, std::string_view body, std::string_view peer_address);

// The worker served the request to its end, with a 2xx or as a WebSocket.
void ReportServed(
    IoThread& thread, const WorkerUrl& url, const RequestDigest& digest, std::string_view request_id);

}  // namespace vllm_router
