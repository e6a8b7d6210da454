// Receipts as JSON, as docs/reference/http_api.md describes them. Pure.
#pragma once

#include <string>

#include "receipts/receipt_log.h"

namespace vllm_router {

std::string ReceiptJson(const ReceiptLog::Row& row);
// The list, and how much of it engines reported.
std::string ReceiptsJson(const ReceiptLog::Found& found);

}  // namespace vllm_router
