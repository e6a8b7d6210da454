#include "base/check.h"

#include <cstdio>
#include <cstdlib>

namespace vllm_router {

void CheckFailed(const char* condition, const char* sentence, const char* file, int line) {
  std::fprintf(stderr, "vllm-router: internal error: %s [%s] at %s:%d\n", sentence, condition, file, line);
  std::abort();
}

}  // namespace vllm_router
