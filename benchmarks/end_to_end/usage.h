// What processes have used, read from /proc: CPU of all their threads, and memory of their own; and how busy each
// core was, by whomever.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace vllm_router::bench {

struct Usage {
  uint64_t cpu_ns = 0;      // schedstat: to the nanosecond, unlike the ticks of stat
  uint64_t user_ticks = 0;  // these two are for the share of user time only
  uint64_t system_ticks = 0;
  uint64_t rss_anon_kb = 0;
  std::vector<uint64_t> core_busy_ticks;
  std::vector<uint64_t> core_all_ticks;
};

inline Usage ReadUsage(const std::vector<int>& pids) {
  Usage usage;
  for (const int pid : pids) {
    const std::filesystem::path process = "/proc/" + std::to_string(pid);
    std::error_code gone;  // a thread may end while we look
    for (const auto& task : std::filesystem::directory_iterator(process / "task", gone)) {
      uint64_t nanos = 0;
      std::ifstream(task.path() / "schedstat") >> nanos;
      usage.cpu_ns += nanos;
    }
    std::string line;
    std::getline(std::ifstream(process / "stat"), line);
    std::istringstream after_name(line.substr(std::min(line.size(), line.rfind(')') + 2)));
    std::string skipped;
    for (int i = 0; i < 11; ++i) after_name >> skipped;
    uint64_t user = 0;
    uint64_t system = 0;
    after_name >> user >> system;
    usage.user_ticks += user;
    usage.system_ticks += system;
    std::ifstream status(process / "status");
    while (std::getline(status, line)) {
      if (line.starts_with("RssAnon:")) usage.rss_anon_kb += std::strtoull(line.c_str() + 8, nullptr, 10);
    }
  }
  std::ifstream stat("/proc/stat");
  for (std::string line; std::getline(stat, line) && line.starts_with("cpu");) {
    if (line[3] == ' ') continue;
    std::istringstream numbers(line);
    std::string name;
    numbers >> name;
    uint64_t all = 0;
    uint64_t idle = 0;
    uint64_t ticks = 0;
    for (int i = 0; i < 8 && numbers >> ticks; ++i) {
      all += ticks;
      if (i == 3 || i == 4) idle += ticks;  // idle and iowait
    }
    usage.core_busy_ticks.push_back(all - idle);
    usage.core_all_ticks.push_back(all);
  }
  return usage;
}

}  // namespace vllm_router::bench
