// The secret for the names in a traffic log (hashing/keyed_hash.h), in a file of its own, so that a
// restarted server gives equal prompts equal names. 16 raw bytes, readable by their owner only.
#pragma once

#include <string>

#include "base/status.h"
#include "hashing/keyed_hash.h"

namespace vllm_router {

// Reads the secret from the file, which is created with mode 0600 if missing; of two servers that start
// at once, one creates it. FailedPrecondition if it cannot be read or created; InvalidArgument if its
// length is wrong or others than its owner can read it.
StatusOr<KeyedHash::Key> ReadOrMakeSalt(const std::string& path);

// A random secret that is not stored.
StatusOr<KeyedHash::Key> DrawSalt();

}  // namespace vllm_router
