// What stress programs share: threads that start together, and checks that count in every build.
#pragma once

#include <barrier>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace vllm_router {

#define STRESS_CHECK(condition)                                                      \
  do {                                                                               \
    if (!(condition)) {                                                              \
      std::fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                  \
    }                                                                                \
  } while (false)

// Runs body(0) .. body(threads - 1) at once, each on its own thread, and waits for all.
template <typename Body>
void RunTogether(int threads, Body body) {
  std::barrier start(threads);
  std::vector<std::jthread> running;
  for (int i = 0; i < threads; ++i) {
    running.emplace_back([&start, &body, i] {
      start.arrive_and_wait();
      body(i);
    });
  }
}

}  // namespace vllm_router
