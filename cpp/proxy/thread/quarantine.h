// Names requests, workers and clients for the quarantine of requests (routing/request_quarantine.h), and
// reports worker events to it. Any thread; a relaxed load if nothing is pending.
#pragma once

#include <cstdint>
#include <string_view>

#include "http/head.h"
#include "routing/request_quarantine.h"
#include "worker/worker_url.h"

namespace vllm_router {

struct IoThread;
struct Settings;

// Equal for all ranks of a host, since they fail together.
uint64_t HostNumber(const WorkerUrl& url);

// The client that a request is counted for, never 0: its API key if this router checks keys, else its
// address. With --trust-forwarded the address is the last one in X-Forwarded-For, which a proxy has
// added.
uint64_t ClientNumber(
    const IoThread& thread, const Settings& settings, const RequestHead& head, std::string_view peer_address);
// Likewise, for each request: cheap, and no more than a hint, since others can be given the same one.
uint32_t ClientTag(
    const IoThread& thread, const Settings& settings, const RequestHead& head, std::string_view peer_address);

// Down: a connect to the worker, or a health check of it, failed. Up: it responded, below 500, to what was
// sent at `since_ns`.
void ReportWorkerDown(IoThread& thread, const WorkerUrl& url);
void ReportWorkerUp(IoThread& thread, const WorkerUrl& url, int64_t since_ns);
// The digest that identifies the request: path and body. Without a body all requests to one path would
// be equal, so the query and the client are included.
RequestDigest DigestOf(
    const IoThread& thread, const Settings& settings, const RequestHead& head, std::string_view body,
    std::string_view peer_address);

// The worker served the request to its end, with a 2xx or as a WebSocket.
void ReportServed(
    IoThread& thread, const WorkerUrl& url, const RequestDigest& digest, std::string_view request_id);

}  // namespace vllm_router
