// Receipts: what each routing decision expected, and what came of it (GET /admin/receipts).
#pragma once

#include "proxy/thread/delegated_requests.h"

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kReceiptsFeature;
extern const Step kReceiptStep;
extern const DelegatedRequests::Hooks
    kDelegatedReceipts;  // the same for requests that workers get from others

}  // namespace vllm_router
