// Files that are read and written whole, so that a reader never sees half of one.
//
//   WriteWholeFile("/var/lib/router/tracker.index", bytes)
//     write tracker.index.tmp-4711-0 beside it, with mode 0600; fsync; rename to tracker.index
//
// A process that is killed meanwhile leaves the file as it was, and a temporary one beside it. Pure
// functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace vllm_router {

// FailedPrecondition when the system call fails. The message says what failed and the system's reason;
// `error` is set to the system's error number.
Status WriteWholeFile(const std::string& path, std::string_view bytes, int* error);

// The same. Also DataLoss when it is not a regular file, or larger than `most` bytes.
StatusOr<std::string> ReadWholeFile(const std::string& path, uint64_t most, int* error);
// The same of a password or another secret, at most kMaxSecretBytes, without the line ends behind it.
inline constexpr uint64_t kMaxSecretBytes = 4096;
StatusOr<std::string> ReadSecretFile(const std::string& path);
// The same of a secret that has at least `min_bytes`; FailedPrecondition names the option that names the file.
StatusOr<std::string> ReadSecretFile(std::string_view option, const std::string& path, size_t min_bytes);

}  // namespace vllm_router
