#include "redis/redis_error.h"

#include <algorithm>
#include <array>

#include "base/text.h"

namespace vllm_router {
namespace {

using Effect = RedisError::Effect;

struct Known {
  std::string_view begins;
  Effect effect;
  std::string_view remedy;
  RedisErrorType type = RedisErrorType::kOther;
};

constexpr std::string_view kLogin = "check the user and the password of the Redis URL or password file";
constexpr std::string_view kNoCluster = "name an endpoint that is not a cluster's, or a cluster proxy";

// The first that fits counts.
constexpr std::array kKnown = {
    Known{"NOAUTH", Effect::kDown, kLogin},
    Known{"WRONGPASS", Effect::kDown, kLogin},
    Known{"ERR invalid password", Effect::kDown, kLogin},
    Known{"ERR AUTH ", Effect::kDown, kLogin},
    Known{"ERR Client sent AUTH", Effect::kDown, kLogin},
    Known{"ERR DB index", Effect::kDown, "check the database at the end of the Redis URL"},
    Known{"ERR invalid DB index", Effect::kDown, "check the database at the end of the Redis URL"},
    Known{
        "ERR max number of clients", Effect::kDown, "raise maxclients of Redis", RedisErrorType::kConnection},
    Known{"NOPERM", Effect::kDown, "permit the user the router's commands and keys"},
    Known{"LOADING", Effect::kDown, "it loads its data"},
    Known{"MASTERDOWN", Effect::kDown, "its primary is down"},
    Known{"BUSY", Effect::kDown, "a script runs"},
    Known{"MOVED", Effect::kDown, kNoCluster},
    Known{"ASK", Effect::kDown, kNoCluster},
    Known{"CLUSTERDOWN", Effect::kDown, kNoCluster},
    Known{"OOM", Effect::kUnwritable, "raise maxmemory of Redis or set an eviction policy"},
    Known{"MISCONF", Effect::kUnwritable, "Redis cannot save its snapshot"},
    Known{"NOREPLICAS", Effect::kUnwritable, "too few replicas are connected to Redis"},
    Known{"READONLY", Effect::kReadOnly, "the Redis URL names a replica; name the primary"},
    Known{"WRONGTYPE", Effect::kOneKey, "another program uses the router's keys"},
};

// Upper-case letters at the start: codes, and never a value.
std::string_view CodeOf(std::string_view text) {
  const auto* const end = std::ranges::find_if(text, [](char c) { return c < 'A' || c > 'Z'; });
  return text.substr(0, std::min<size_t>(static_cast<size_t>(end - text.begin()), 32));
}

}  // namespace

std::string_view NameOf(RedisErrorType type) {
  constexpr std::array<std::string_view, kRedisErrorTypes> kNames = {"connection", "timeout", "other"};
  return kNames[static_cast<size_t>(type)];
}

RedisErrorType TypeOf(const Status& failure) {
  if (absl::IsUnavailable(failure)) return RedisErrorType::kConnection;
  return absl::IsDeadlineExceeded(failure) ? RedisErrorType::kTimeout : RedisErrorType::kOther;
}

RedisError ReadRedisError(std::string_view text) {
  const std::string_view code = CodeOf(text);
  for (const Known& known : kKnown) {
    const bool whole = known.begins.find(' ') == std::string_view::npos;
    if (whole ? code != known.begins : !text.starts_with(known.begins)) continue;
    return {known.effect, known.type, Concat("replied ", code, ": ", known.remedy)};
  }
  return {Effect::kOneKey, RedisErrorType::kOther, Concat("replied ", code.empty() ? "an error" : code)};
}

}  // namespace vllm_router
