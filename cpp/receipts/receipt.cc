#include "receipts/receipt.h"

namespace vllm_router {

std::string_view ArmName(Arm arm) { return arm == Arm::kPolicy ? "policy" : "holdout"; }

}  // namespace vllm_router
