#include "base/check.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/log.h"
#include "base/log_output.h"

namespace vllm_router {
namespace {

constexpr int kLastLineMs = 500;

}  // namespace

// What led to it comes first. Neither part waits long, so that a pipe without a reader does not keep the process.
void CheckFailed(const char* condition, const char* sentence, const char* file, int line) {
  FlushLog(kLastLineMs);
  char text[1024];
  std::snprintf(
      text, sizeof text, "vllm-router: internal error: %s [%s] at %s:%d\n", sentence, condition, file, line);
  WriteBriefly(STDERR_FILENO, std::string_view(text), kLastLineMs);
  std::abort();
}

}  // namespace vllm_router
