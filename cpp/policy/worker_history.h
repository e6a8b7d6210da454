// WorkerHistory: what each worker was sent lately, and how slow it was compared with the others. A column by the
// worker's slot in the index (KvIndex::Plan::known).
//
//   sent   work of the last 50 or so requests per worker: Add() with each, Fade() once per as many as there are workers
//   pace   mean logarithm of (time / expected time) of its last 40 or so measurements, times `known`
//   known  how far it is known, 0 to 1: 1/8 after the first measurement, 2/3 after eight
//
// A worker that is new was sent nothing, and nothing is known of its pace. Fade() also takes 1/400 of pace and known,
// so that a worker that gets no requests because it was slow is tried again.
//
// Cost: 24 bytes per worker; Fade is O(places), all else O(1). Thread-safe; of two changes at once one may be lost.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>

#include "base/limits.h"
#include "policy/kv_index.h"

namespace vllm_router {

class WorkerHistory {
 public:
  using Place = KvIndex::Plan::Known;  // a worker, and the slot that it has now

  static constexpr double kSentMemory = 50;    // requests per worker
  static constexpr uint32_t kPaceMemory = 40;  // measurements
  static constexpr uint32_t kPaceCertain = 8;
  static constexpr double kPaceFaded = 1.0 / 400;  // by each Fade()
  static constexpr double kLargestPace =
      2.0794415416798357;  // ln 8, in both directions: one measurement says no more

  WorkerHistory() : entries_(std::make_unique<Entry[]>(kMaxWorkers)) {}

  // Of one time: a decision reads both with one load.
  struct alignas(8) Speed {
    float pace = 0;
    float known = 0;
  };
  struct Reading {
    double sent = 0;
    Speed speed;
  };
  Reading Read(const Place& place) const {
    const Entry& entry = entries_[static_cast<size_t>(place.slot)];
    if (entry.worker.load(std::memory_order_relaxed) != place.worker) return {};
    return {entry.sent.load(std::memory_order_relaxed), entry.speed.load(std::memory_order_relaxed)};
  }

  void Add(const Place& place, double work) {
    Entry& entry = EntryOf(place);
    entry.sent.store(entry.sent.load(std::memory_order_relaxed) + work, std::memory_order_relaxed);
  }
  void LearnPace(const Place& place, double logarithm) {
    Entry& entry = EntryOf(place);
    const uint32_t count = std::min(entry.count.load(std::memory_order_relaxed) + 1, kPaceMemory);
    entry.count.store(count, std::memory_order_relaxed);
    const double share = 1.0 / std::max(kPaceCertain, count);
    const double found = std::clamp(logarithm, -kLargestPace, kLargestPace);
    const Speed before = entry.speed.load(std::memory_order_relaxed);
    entry.speed.store(
        {Nearer(before.pace, found, share), Nearer(before.known, 1, share)}, std::memory_order_relaxed);
  }
  void Fade(std::span<const Place> places, std::span<const uint32_t> positions) {
    for (const uint32_t position : positions) {
      Entry& entry = EntryOf(places[position]);
      entry.sent.store(
          entry.sent.load(std::memory_order_relaxed) * (1 - 1 / kSentMemory), std::memory_order_relaxed);
      const Speed before = entry.speed.load(std::memory_order_relaxed);
      if (before.known == 0) continue;
      entry.speed.store(
          {Nearer(before.pace, 0, kPaceFaded), Nearer(before.known, 0, kPaceFaded)},
          std::memory_order_relaxed);
    }
  }

 private:
  struct Entry {
    std::atomic<double> sent{0};
    std::atomic<WorkerId> worker{WorkerId{UINT32_MAX}};
    std::atomic<uint32_t> count{0};  // of measurements
    std::atomic<Speed> speed{};
  };

  static float Nearer(double before, double value, double share) {
    return static_cast<float>(before + (value - before) * share);
  }

  // Of another worker that had the slot before nothing is kept.
  Entry& EntryOf(const Place& place) {
    Entry& entry = entries_[static_cast<size_t>(place.slot)];
    if (entry.worker.load(std::memory_order_relaxed) != place.worker) {
      entry.sent.store(0, std::memory_order_relaxed);
      entry.speed.store({}, std::memory_order_relaxed);
      entry.count.store(0, std::memory_order_relaxed);
      entry.worker.store(place.worker, std::memory_order_relaxed);
    }
    return entry;
  }

  const std::unique_ptr<Entry[]> entries_;  // by slot
};

}  // namespace vllm_router
