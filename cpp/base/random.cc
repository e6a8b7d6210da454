#include "base/random.h"

#include <random>

namespace vllm_router {

uint64_t Random::EntropySeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

}  // namespace vllm_router
