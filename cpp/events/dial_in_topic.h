// DialInTopic: how a publisher of KV events that connects to the router says whose it is, in the topic of its
// messages.
//
//   kv@10.0.0.7:8000@model    the worker's host and port, and a name that is not read
//   kv@10.0.0.7@model         the only worker on that host
//
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "worker/worker.h"
#include "worker/worker_url.h"

namespace vllm_router {

inline constexpr std::string_view kDialInTopicPrefix = "kv@";

// A worker whose publisher may connect.
struct DialInWorker {
  WorkerId worker{};
  WorkerUrl url;
  std::string model;  // name of the base model, as requests give it

  friend bool operator==(const DialInWorker& a, const DialInWorker& b) {
    return a.worker == b.worker && a.url.url == b.url.url && a.model == b.model;
  }
};

struct DialInTopic {
  std::string_view host;  // without brackets
  std::optional<uint16_t> port;
};
// nullopt: not kv@HOST[:PORT]@MODEL.
std::optional<DialInTopic> ParseDialInTopic(std::string_view topic);

// One bound socket, as of now.
struct DialInStatus {
  std::string endpoint;  // that it is bound to; before it is: that it shall be
  bool bound = false;
  uint64_t unknown_worker = 0;  // messages whose topic names no worker, or several
  uint64_t malformed = 0;       // messages
};

// Of ZeroMQ, to bind: tcp with an address of this machine or *, and a port, or ipc. InvalidArgument names
// `option`, the value and the remedy.
Status CheckBindEndpoint(std::string_view option, std::string_view endpoint);

}  // namespace vllm_router
