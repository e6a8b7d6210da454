// KvSource: where one data-parallel rank of a worker publishes its KV events, and how an operator or an
// engine names that place; and what the events thread tells of it.
//
//   http://w1:8000=tcp://w1:5557,tcp://w1:5558      --kv-event-source: an endpoint per rank
//   tcp://*:5557  of worker w1                      an engine's own words; becomes tcp://w1:5557
//
// TensorRT-LLM publishes nothing; of its workers the endpoint is the URL that is polled. Pure; any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "index/block_index.h"
#include "index/kv_trust.h"
#include "worker/worker.h"

namespace vllm_router {

inline constexpr uint32_t kMaxKvRanks = 256;  // data-parallel ranks of a worker, from 0

// How a source is heard.
enum class KvSourceKind : uint8_t {
  kZmq,     // it publishes over ZeroMQ
  kTrtllm,  // its endpoint, a URL, is polled
};
std::string_view KvSourceKindName(KvSourceKind kind);

struct KvSource {
  KvSourceKind kind = KvSourceKind::kZmq;
  WorkerId worker{};
  std::string url;  // the worker's, for the log
  uint32_t rank = 0;
  bool any_rank = false;        // batches of other ranks count too: a worker with one endpoint
  std::string endpoint;         // of the publisher: tcp://host:port or ipc://path; of kTrtllm http(s)://…
  std::string replay_endpoint;  // empty: lost batches stay lost
  std::string topic;            // prefix of the topics to hear
  std::string model;            // name of the base model, as requests give it

  friend bool operator==(const KvSource&, const KvSource&) = default;
};

// One source, as of now.
struct KvSourceStatus {
  using Counts = std::vector<std::pair<std::string_view, uint64_t>>;  // by label; without zeros

  KvSource source;
  KvTrust trust = KvTrust::kWaiting;  // of the source; its worker's is the worst of its sources'
  double trust_seconds = 0;           // since it changed last
  bool connected = false;
  uint64_t reconnects = 0;
  uint64_t received_batches = 0;  // live and replayed
  uint64_t applied_batches = 0;
  uint64_t lost_batches = 0;
  double lag_seconds = 0;  // of the last batch: from the engine's clock to ours; 0: it has no time
  uint64_t next_number = 0;
  uint32_t incarnation = 0;
  uint64_t held_bytes = 0;
  uint32_t block_size = 0;  // tokens, of the engine; 0: not known yet
  double coverage = 0;      // of the engine's GPU blocks those that are known; 0: it does not tell how many
  uint64_t stored_blocks = 0;   // of the engine, ever
  uint64_t removed_blocks = 0;  // likewise
  uint64_t unknown_removed_blocks = 0;
  std::array<uint64_t, kTierCount> blocks{};  // of the router's size that the cache holds now
  uint64_t orphan_blocks = 0;
  uint64_t bytes = 0;   // of the map from the engine's names to places
  Counts dropped;       // events and batches, by reason
  Counts replays;       // by result
  Counts incarnations;  // by cause
};

// Adds a count of a label; a zero is left out.
inline void AddCount(KvSourceStatus::Counts* counts, std::string_view label, uint64_t count) {
  if (count != 0) counts->emplace_back(label, count);
}

// The value of a flag: a worker and an endpoint for each of its ranks.
struct NamedEndpoints {
  std::string worker;  // URL, as WorkerUrl has it
  std::vector<std::string> endpoints;
};

// InvalidArgument names `option`, the value, the limit and the remedy.
StatusOr<NamedEndpoints> ParseNamedEndpoints(std::string_view option, std::string_view value);
// Of ZeroMQ, to connect to: tcp with host and port, or ipc.
Status CheckEndpoint(std::string_view option, std::string_view endpoint);

// The endpoint that an engine binds to, for another machine: `*` and addresses that stand for all become
// `host`.
std::string ReachableEndpoint(std::string_view endpoint, std::string_view host);

// At most `most` of them, in their order and about the same number for each worker, so that one that names
// many ranks takes no other's place. REQUIRES: those of a worker follow each other.
std::vector<KvSource> FairShare(std::vector<KvSource> sources, size_t most);

// True if the endpoint is tcp on this host, where all names of the own machine are one host.
bool IsOnHost(std::string_view endpoint, std::string_view host);

}  // namespace vllm_router
