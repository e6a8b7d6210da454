// TrtllmReceiver: the KV events of TensorRT-LLM engines, which are polled. A response has all events since the
// one before, and an engine gives each event once.
//
//   response   0 1 2     first contact with number 0: exact
//   response   3 4 7     5 and 6 are lost for good: partial, and what is known stays
//   response   0 1       a lower number: the engine has restarted. What was known is dropped; exact again
//
// As KvPushReceiver it does without SourceState: there is no replay to request and no batch to hold meanwhile,
// and an engine that restarts begins with the numbers and events of before, which SourceState would take for
// duplicates. Each attention data-parallel rank has numbers and a cache of its own, so it is a source.
//
// Only the layers whose attention reaches furthest count. An engine does not tell its block size: it is that of
// the first event with two blocks, or of the largest single block until then, whose smaller ones were the ends
// of prompts.
//
// What one engine may cost the others: kMaxRanks sources of kMaxBlocks blocks, one new incarnation of a rank for
// each response, and the time that its response takes, which the caller limits. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "events/kv_source.h"
#include "events/trtllm_event.h"
#include "events/worker_trust.h"
#include "index/reported_blocks.h"

namespace vllm_router {

class TrtllmReceiver {
 public:
  static constexpr uint32_t kMaxRanks = 64;          // of an endpoint
  static constexpr uint64_t kMaxBlocks = 1'000'000;  // of a rank
  static constexpr int64_t kGoneNanos = 30'000'000'000;
  // Of an incarnation: times that all that is known of it proves to be of other layers, or the ends of prompts.
  static constexpr int kMaxCorrections = 16;

  // `blocks` outlives it.
  explicit TrtllmReceiver(ReportedBlocks* blocks);
  ~TrtllmReceiver();

  // The sources from now on; those that are the same go on. Those with one endpoint are ranks of one engine; one
  // with any_rank has all ranks.
  void SetSources(const std::vector<KvSource>& sources, int64_t now_ns);

  struct Result {
    bool malformed = false;
    uint64_t events = 0;
    uint64_t lost = 0;  // numbers that were passed over
    bool restarted = false;
  };
  Result Take(std::string_view endpoint, std::string_view response, int64_t now_ns);
  // A response was not taken, and its events are lost.
  void Lose(std::string_view endpoint, int64_t now_ns);
  // There was no response that could be read.
  void Miss(std::string_view endpoint, int64_t now_ns);
  // The engine may be another one when it responds again: then numbers that are missing mean that it is.
  void ReportOutage(std::string_view endpoint);
  // Drops what is known of the worker.
  void Resync(WorkerId worker, int64_t now_ns);
  // Once a second: workers that are silent or gone, and caches that hold too much.
  void Watch(int64_t now_ns);

  std::vector<KvSourceStatus> Report(int64_t now_ns) const;

 private:
  class Rank;
  struct Endpoint {
    std::vector<KvSource> told;
    std::map<uint32_t, std::unique_ptr<Rank>> ranks;
    bool connected = false;
    bool ever_connected = false;
    int64_t missing_since_ns = 0;  // 0: it responds
    uint64_t reconnects = 0;
    uint64_t malformed = 0;   // responses
    uint64_t wrong_rank = 0;  // events
    uint64_t unnumbered = 0;  // likewise
  };

  Rank* FindRank(Endpoint* endpoint, uint32_t number);
  void SetTrusts(int64_t now_ns);
  bool IsGone(const Endpoint& endpoint, int64_t now_ns) const;

  ReportedBlocks& blocks_;
  std::map<std::string, Endpoint, std::less<>> endpoints_;
  TrustLog trust_log_;
  std::map<WorkerId, WorkerTrust> workers_;  // of all sources
  TrtllmReader reader_;
  TrtllmEvent event_;  // reused
  uint64_t responses_ = 0;
};

}  // namespace vllm_router
