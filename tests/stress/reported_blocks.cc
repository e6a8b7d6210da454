// One thread applies an engine's events, which move a prompt from the GPU to host memory and back, four match
// it meanwhile, and one predicts, changes trust and rotates. The whole prompt is always found on some tier: a
// block is never invisible while it moves. In the end nothing is left of the engine.
#include "index/reported_blocks.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

#include "events/event_applier.h"
#include "events/kv_event.h"
#include "index/predicted_blocks.h"
#include "stress.h"

namespace vllm_router {
namespace {

constexpr uint32_t kBlockTokens = 16;
constexpr uint32_t kBlocks = 24;
constexpr int kMoves = 50'000;
constexpr WorkerId kWorker{7};
constexpr WorkerSlot kSlot{3};
constexpr char kModel[] = "m";

std::vector<uint32_t> Tokens() {
  std::vector<uint32_t> tokens(kBlocks * kBlockTokens);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<uint32_t>(i);
  return tokens;
}

// Engines name a block as they like: by its place in the prompt.
void Append(KvEventKind kind, KvMedium medium, uint32_t first, uint32_t count, KvBatch* batch) {
  KvEvent event{.kind = kind, .medium = medium};
  event.hash_begin = static_cast<uint32_t>(batch->hashes.size());
  event.hash_count = count;
  for (uint32_t i = 0; i < count; ++i) batch->hashes.push_back(1000 + first + i);
  if (kind == KvEventKind::kStored) {
    event.block_size = kBlockTokens;
    if (first != 0) event.parent = 1000 + first - 1;
    event.token_begin = static_cast<uint32_t>(batch->tokens.size());
    event.token_count = count * kBlockTokens;
    const std::vector<uint32_t> tokens = Tokens();
    const auto begin = tokens.begin() + first * kBlockTokens;
    batch->tokens.insert(batch->tokens.end(), begin, begin + event.token_count);
  }
  batch->events.push_back(event);
}

void BlocksMoveWhileTheyAreMatched() {
  const BlockHasher hasher(kBlockTokens);
  ReportedBlocks reported(hasher);
  PredictedBlocks predicted;
  const ReportedBlocks::Known known[] = {{kWorker, kSlot}};
  reported.SetWorkers(known);
  std::vector<BlockHash> chain(kBlocks);
  hasher.Hash(hasher.Root({.lora_name = kModel}), Tokens(), chain);

  {
    EventApplier applier(&reported, kWorker, {.model = kModel});
    KvBatch batch;
    Append(KvEventKind::kStored, KvMedium::kGpu, 0, kBlocks, &batch);
    applier.Apply(batch, 0);
    reported.SetTrust(kWorker, KvTrust::kExact);
    std::atomic<bool> moving{true};
    RunTogether(6, [&](int thread) {
      if (thread == 0) {
        for (int i = 0; i < kMoves; ++i) {
          // A part of the prompt, with its new place before or behind the removal from the old one: within a batch
          // that makes no difference.
          const auto first = static_cast<uint32_t>(i) % kBlocks;
          const uint32_t count = 1 + static_cast<uint32_t>(i / 7) % (kBlocks - first);
          for (const KvMedium to : {KvMedium::kHost, KvMedium::kGpu}) {
            const KvMedium from = to == KvMedium::kHost ? KvMedium::kGpu : KvMedium::kHost;
            batch.Clear();
            if (i % 2 == 0) Append(KvEventKind::kRemoved, from, first, count, &batch);
            Append(KvEventKind::kStored, to, first, count, &batch);
            if (i % 2 != 0) Append(KvEventKind::kRemoved, from, first, count, &batch);
            applier.Apply(batch, i);
          }
        }
        moving = false;
        return;
      }
      BlockMatches matches;
      for (int64_t i = 1; moving; ++i) {
        if (thread == 1) {
          predicted.EndWait(predicted.Add(kSlot, chain));
          predicted.Rotate(i, 5);
          reported.SetTrust(kWorker, i % 2 == 0 ? KvTrust::kExact : KvTrust::kSettled);
          continue;
        }
        matches.Clear();
        reported.Merge(chain, true, &matches);
        const BlockMatch* const found = matches.Find(kSlot);
        STRESS_CHECK(found != nullptr && found->longest() == kBlocks);
        STRESS_CHECK(found->on(Tier::kGpu) <= found->on(Tier::kHost));
        predicted.Merge(chain, reported, &matches);
        STRESS_CHECK(matches.Find(kSlot)->longest() == kBlocks);
      }
    });
    const std::array<uint64_t, kTierCount> counts = applier.TierCounts();
    STRESS_CHECK(counts[0] == kBlocks && counts[1] == 0);
    STRESS_CHECK(applier.figures().unknown_removed == 0 && applier.figures().contradictions == 0);
  }
  reported.SetWorkers({});
  while (reported.index().Sweep(1000)) {
  }
  STRESS_CHECK(reported.index().stats().pairs == 0);
}

}  // namespace
}  // namespace vllm_router

int main() { vllm_router::BlocksMoveWhileTheyAreMatched(); }
