// The secret under which a record log's names are made (hashing/keyed_hash.h), in a file of its own, so that a server that
// starts again gives equal prompts equal names: 16 bytes, as they are, for their owner's eyes only.
#pragma once

#include <string>

#include "base/status.h"
#include "hashing/keyed_hash.h"

namespace vllm_router {

// The secret in the file, which is made with mode 0600 if there is none; of two servers that start at once one makes it.
// FailedPrecondition when it cannot be read or made, InvalidArgument when it has another length, or is readable by others
// than its owner.
StatusOr<KeyedHash::Key> ReadOrMakeSalt(const std::string& path);

// One that is kept nowhere.
StatusOr<KeyedHash::Key> DrawSalt();

}  // namespace vllm_router
