#include "index/distinct_count.h"

#include <bit>
#include <cmath>

namespace vllm_router {
namespace {

// The two series of Ertl's paper, for registers never touched and for registers that are full.
double Sigma(double x) {
  double y = 1;
  double z = x;
  for (double last = -1; z != last;) {
    last = z;
    x *= x;
    z += x * y;
    y += y;
  }
  return z;
}

double Tau(double x) {
  if (x == 0 || x == 1) return 0;
  double y = 1;
  double z = 1 - x;
  for (double last = -1; z != last;) {
    last = z;
    x = std::sqrt(x);
    y /= 2;
    z -= (1 - x) * (1 - x) * y;
  }
  return z / 3;
}

}  // namespace

void DistinctCount::Add(uint64_t hash) {
  std::atomic<uint8_t>& reg = registers_[hash >> kRankBits];
  // A one behind the last bit ends the count of zeros.
  const uint64_t rest = hash << kIndexBits | uint64_t{1} << (kIndexBits - 1);
  const auto rank = static_cast<uint8_t>(std::countl_zero(rest) + 1);
  uint8_t seen = reg.load(std::memory_order_relaxed);
  while (seen < rank && !reg.compare_exchange_weak(seen, rank, std::memory_order_relaxed)) {
  }
}

uint64_t DistinctCount::Estimate() const {
  std::array<uint32_t, kRankBits + 2> counts{};
  for (const std::atomic<uint8_t>& reg : registers_) ++counts[reg.load(std::memory_order_relaxed)];
  const auto m = static_cast<double>(registers_.size());
  if (counts[0] == registers_.size()) return 0;
  double z = m * Tau(1 - counts[kRankBits + 1] / m);
  for (size_t k = kRankBits; k >= 1; --k) z = (z + counts[k]) / 2;
  z += m * Sigma(counts[0] / m);
  return static_cast<uint64_t>(std::llround(m * m / (2 * std::log(2.0) * z)));
}

}  // namespace vllm_router
