// Eight threads write receipts while others look for them: no receipt is torn, none comes back after a newer one of its
// thread, and in the end the last ones of each thread are there. TSan sees that no word is read while it is written.
#include "receipts/receipt_log.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/text.h"
#include "receipts/seqlock_ring.h"
#include "stress.h"
#include "worker/worker.h"

namespace vllm_router {
namespace {

constexpr int kWriters = 8;
constexpr size_t kCapacity = 32;
constexpr uint64_t kReceipts = 20'000;

// It shows it when it is torn: every cell repeats its number.
struct Cells {
  explicit Cells(uint64_t number = 0) { cells.fill(number); }
  bool Whole() const {
    for (const uint64_t cell : cells) {
      if (cell != cells[0]) return false;
    }
    return true;
  }
  std::array<uint64_t, 23> cells;
};

void ReadersOfARingSeeWholeValuesInOrder() {
  SeqlockRing<Cells> ring(kCapacity);
  std::atomic<uint64_t> reads{0};
  RunTogether(3, [&](int thread) {
    if (thread == 0) {
      for (uint64_t number = 0; number < 10 * kReceipts; ++number) ring.Add(Cells(number));
      return;
    }
    uint64_t count = 0;
    for (uint64_t added = 0; added < 10 * kReceipts;) {
      added = ring.added();
      for (uint64_t number = added; number-- > added - std::min<uint64_t>(added, kCapacity);) {
        Cells cells;
        if (!ring.Read(number, &cells)) break;
        STRESS_CHECK(cells.Whole());
        STRESS_CHECK(cells.cells[0] == number);
        ++count;
      }
    }
    reads.fetch_add(count);
  });
  STRESS_CHECK(reads.load() >= 2 * kCapacity);  // of the end, at least
}

// All of a receipt follows from its thread and number.
void Write(ReceiptWriter* writer, const Worker& worker, const std::string& id, uint64_t number) {
  const Decision decision{
      .worker = worker.id,
      .reason = Reason::kLowestCost,
      .unit = MatchUnit::kTokens,
      .matched = number,
      .total = kReceipts,
      .best_worker = worker.id};
  writer->Write(
      {.request_id = id,
       .model = "model-" + std::to_string(number % 50),
       .policy = "auto",
       .route = "/v1/completions",
       .end = "done",
       .worker = &worker,
       .decision = &decision,
       .block_tokens = 16,
       .prompt_tokens = number + 1,
       .cached_tokens = number,
       .wall_us = static_cast<int64_t>(number),
       .status = 200,
       .attempts = 1});
}

void CheckWhole(const ReceiptLog::Row& row, const std::vector<std::unique_ptr<Worker>>& workers) {
  const Receipt& receipt = row.receipt;
  const std::string id(receipt.request_id());
  const size_t dash = id.find('-');
  STRESS_CHECK(dash != std::string::npos);
  const auto thread = static_cast<size_t>(std::stoull(id.substr(0, dash)));
  const uint64_t number = std::stoull(id.substr(dash + 1));
  STRESS_CHECK(receipt.predicted == number && receipt.reported == number && receipt.prompt == number + 1);
  STRESS_CHECK(receipt.wall_us == static_cast<int64_t>(number));
  STRESS_CHECK(receipt.worker == static_cast<uint32_t>(workers[thread]->id));
  STRESS_CHECK(row.worker == workers[thread]->url.url);
  STRESS_CHECK(row.model == "model-" + std::to_string(number % 50));
}

void AReaderBesideEightWritersSeesNoTornReceipt() {
  ReceiptLog log(kWriters, {.per_thread = kCapacity, .candidates_every = 0});
  std::vector<std::unique_ptr<Worker>> workers;
  for (uint32_t i = 0; i < kWriters; ++i) {
    workers.push_back(std::make_unique<Worker>(
        WorkerId{i}, *ParseWorkerUrl("http://w" + std::to_string(i) + ":8000"), kWeightOne,
        std::make_shared<WorkerLoad>()));
  }
  std::atomic<int> writing{kWriters};
  RunTogether(kWriters + 1, [&](int thread) {
    if (thread == kWriters) {
      do {
        const ReceiptLog::Found found = log.Find({.last = 1000});
        STRESS_CHECK(found.kept <= kWriters * kCapacity && found.rows.size() == found.kept);
        for (const ReceiptLog::Row& row : found.rows) CheckWhole(row, workers);
        if (const std::optional<ReceiptLog::Row> one = log.FindOne("3-17")) CheckWhole(*one, workers);
      } while (writing.load() > 0);
      return;
    }
    const auto own = static_cast<size_t>(thread);
    for (uint64_t number = 0; number < kReceipts; ++number)
      Write(&log.writer(own), *workers[own], Concat(thread, "-", number), number);
    writing.fetch_sub(1);
  });
  const ReceiptLog::Found found = log.Find({.last = 1000});
  STRESS_CHECK(found.rows.size() == kWriters * kCapacity);
  STRESS_CHECK(found.overwritten == kWriters * (kReceipts - kCapacity));
  for (const ReceiptLog::Row& row : found.rows) CheckWhole(row, workers);
}

}  // namespace
}  // namespace vllm_router

int main() {
  vllm_router::ReadersOfARingSeeWholeValuesInOrder();
  vllm_router::AReaderBesideEightWritersSeesNoTornReceipt();
}
