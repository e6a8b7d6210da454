// ReceiptFilter: which receipts are wanted, by the query of GET /admin/receipts or the arguments of Router.receipts().
// Each parameter narrows the list; without any the last 100 receipts are it. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "policy/decision.h"
#include "receipts/receipt.h"

namespace vllm_router {

struct ReceiptFilter {
  static constexpr size_t kDefaultLast = 100;
  static constexpr size_t kMostLast = 1000;

  size_t last = kDefaultLast;
  std::optional<std::string> worker = {};  // its URL
  std::optional<std::string> model = {};
  std::optional<Reason> reason = {};
  std::optional<Arm> arm = {};
  uint64_t min_miss_tokens = 0;
  int64_t since_us = 0;  // Unix time of the request's head

  using Parameter = std::pair<std::string, std::string>;
  // Names and values, decoded. An error names the parameter, its value and what is possible.
  static StatusOr<ReceiptFilter> Parse(const std::vector<Parameter>& parameters);
};

// "2026-11-29T21:00:00.123Z"; and back, where seconds since 1970 will do as well.
std::string TimeText(int64_t unix_us);
std::optional<int64_t> ParseTime(std::string_view text);

}  // namespace vllm_router
