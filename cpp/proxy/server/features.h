// The features of the router: a row for each registers it.
#pragma once

#include <span>

namespace vllm_router {

struct Feature;

// In the order in which they are added: their services start and write metrics in this order.
std::span<const Feature* const> Features();

}  // namespace vllm_router
