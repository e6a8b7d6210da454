// Where a model's chat template prints tools: before or after the system prompt. The routing text has them in the same
// order (routing_text.h), so that prompts which differ at the end of the system prompt share their tools where the
// engine's do.
//
//   ToolOrders orders(ToolOrder::kUnknown);           until learned; or fixed for all models
//   orders.Learn("m", CompareToolProbes(ids, ids))    of two calls to /tokenize with WriteToolProbe()
//   orders.Of("m")                                    kFirst
//
// Learned orders are in a table of a fixed size, by a hash of the model's name; of two models in one slot the later one
// is known. Clients cannot make it grow. Thread-safe; lock-free.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace vllm_router {

enum class ToolOrder : uint8_t { kUnknown, kAfter, kFirst };

class ToolOrders {
 public:
  static constexpr size_t kPlaces = 256;

  explicit ToolOrders(ToolOrder fixed) : fixed_(fixed) {}

  ToolOrder Of(std::string_view model) const;
  // Without effect if the order is fixed.
  void Learn(std::string_view model, ToolOrder order);

 private:
  const ToolOrder fixed_;
  // A hash without its lowest two bits, which are the order.
  std::array<std::atomic<uint64_t>, kPlaces> places_{};
};

// The body of a call to /tokenize: a chat with a system prompt and a tool. The two of a model differ in the system prompt
// alone, from its first word to its last.
std::string WriteToolProbe(std::string_view model, bool second);
// Of their token ids: kFirst if these agree longer at the start than at the end. kAfter if the template prints no tools,
// or prints them in a later message.
ToolOrder CompareToolProbes(std::span<const uint32_t> first, std::span<const uint32_t> second);

}  // namespace vllm_router
