// Receipts: what each routing decision expected, and what came of it (GET /admin/receipts).
#pragma once

namespace vllm_router {

struct Feature;
struct Step;

extern const Feature kReceiptsFeature;
extern const Step kReceiptStep;

}  // namespace vllm_router
