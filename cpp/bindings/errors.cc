// The one table from Status to Python exceptions.
#include "bindings/bindings.h"

namespace vllm_router {

void BindErrors(pybind11::module_& /*module*/) {}

}  // namespace vllm_router
