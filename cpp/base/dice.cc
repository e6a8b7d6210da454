#include "base/dice.h"

#include <random>

namespace vllm_router {

uint64_t Dice::EntropySeed() {
  std::random_device device;
  return (static_cast<uint64_t>(device()) << 32) ^ device();
}

}  // namespace vllm_router
