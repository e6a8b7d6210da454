// Commands to Redis in the form of its protocol, RESP2: an array of texts, which may have any bytes.
//
//   AppendRedisCommand({"SET", key, value, "EX", "60"}, &commands);
//   AppendRedisCommand({"GET", key}, &commands);                      // a pipeline: two replies
//
// Cost: two copies of the texts. Pure functions; any thread.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

namespace vllm_router {

// REQUIRES: there is a word.
void AppendRedisCommand(std::span<const std::string_view> words, std::string* commands);
inline void AppendRedisCommand(std::initializer_list<std::string_view> words, std::string* commands) {
  AppendRedisCommand(std::span<const std::string_view>(words.begin(), words.size()), commands);
}

}  // namespace vllm_router
