// Files that are read and written as a whole, so that nobody ever sees half of one.
//
//   WriteWholeFile("/var/lib/router/tracker.index", bytes)
//     write tracker.index.tmp-4711-0 beside it, with mode 0600; fsync; rename to tracker.index
//
// A process that is killed on the way leaves the file as it was, and a temporary one beside it. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

// FailedPrecondition when the system refuses; the message says what was tried and the system's reason, and the system's
// error number is left in `error`.
Status WriteWholeFile(const std::string& path, std::string_view bytes, int* error);

// The same; besides, DataLoss when it is no regular file, or larger than `most` bytes.
StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t most, int* error);

}  // namespace vllm_router
