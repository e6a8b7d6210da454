// DecisionHeaders: what --decision-headers adds to a worker's response, so that its reader sees why that
// worker was chosen. Off by default: the headers show the fleet's addresses.
//
//   DecisionHeaders headers(record, policy);
//   WriteClientHead(response, {…, .extra = headers.fields()}, &head);
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/header_field.h"
#include "proxy/telemetry/request_info.h"

namespace vllm_router {

class DecisionHeaders {
 public:
  // For an exchange whose worker has responded.
  DecisionHeaders(const RequestInfo& record, std::string_view policy);
  DecisionHeaders(const DecisionHeaders&) = delete;

  std::span<const HeaderField> fields() const { return fields_; }

 private:
  void Add(std::string_view name, std::string value);

  std::vector<std::string> values_;
  std::vector<HeaderField> fields_;
};

}  // namespace vllm_router
