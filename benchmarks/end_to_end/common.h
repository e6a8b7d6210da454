// What load_generator.cc and upstream.cc share: flags, clock, and just enough HTTP/1.1 to talk to a proxy.
//
// The HTTP here is deliberately not the one of cpp/http: what measures a proxy should not share its mistakes. It
// knows heads of one spelling or another, lengths and "Connection: close"; what it does not know, it refuses.
#pragma once

#include <strings.h>
#include <sys/resource.h>

#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace vllm_router::bench {

// Each event of a stream carries the time it was sent, in digits behind this character and nowhere else.
inline constexpr char kStampMark = '@';
inline constexpr int kStampDigits = 19;

inline uint64_t NowNanos() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

[[noreturn]] inline void Fail(const std::string& sentence) {
  std::fprintf(stderr, "%s\n", sentence.c_str());
  std::exit(1);
}

// "--name value" pairs; each name must be one that the program has a default for.
class Flags {
 public:
  Flags(int argc, char** argv, std::map<std::string, std::string> defaults) : values_(std::move(defaults)) {
    for (int i = 1; i < argc; i += 2) {
      const std::string name = argv[i];
      if (!name.starts_with("--") || !values_.contains(name.substr(2)) || i + 1 == argc) {
        std::string known;
        for (const auto& [flag, value] : values_) known += " --" + flag;
        Fail(std::string(argv[0]) + ": " + name + " is not a flag with a value; there are:" + known);
      }
      values_[name.substr(2)] = argv[i + 1];
    }
  }

  const std::string& Text(const std::string& name) const { return values_.at(name); }
  double Number(const std::string& name) const { return std::strtod(Text(name).c_str(), nullptr); }
  uint64_t Count(const std::string& name) const { return std::strtoull(Text(name).c_str(), nullptr, 10); }

 private:
  std::map<std::string, std::string> values_;
};

// As many descriptors as this process may have.
inline void RaiseFileLimit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// The parts of a head, request's or response's, that decide where the message ends.
struct Head {
  size_t bytes = 0;  // with the empty line
  std::string_view start_line;
  std::string_view fields;
  std::optional<uint64_t> content_length;
  bool chunked = false;
  bool close = false;
};

inline std::string_view FieldOf(std::string_view fields, std::string_view name) {
  while (!fields.empty()) {
    const size_t end = fields.find("\r\n");
    const std::string_view line = fields.substr(0, end);
    if (line.size() > name.size() && line[name.size()] == ':' &&
        strncasecmp(line.data(), name.data(), name.size()) == 0) {
      std::string_view value = line.substr(name.size() + 1);
      while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
      return value;
    }
    if (end == std::string_view::npos) break;
    fields.remove_prefix(end + 2);
  }
  return {};
}

// The head at the beginning of `bytes`; nothing as long as its end is missing.
inline std::optional<Head> FindHead(std::string_view bytes) {
  const size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) return std::nullopt;
  Head head;
  head.bytes = end + 4;
  const size_t line = bytes.find("\r\n");
  head.start_line = bytes.substr(0, line);
  head.fields = line == end ? std::string_view{} : bytes.substr(line + 2, end - line - 2);
  const std::string_view length = FieldOf(head.fields, "content-length");
  if (!length.empty()) {
    uint64_t value = 0;
    std::from_chars(length.data(), length.data() + length.size(), value);
    head.content_length = value;
  }
  const std::string_view coding = FieldOf(head.fields, "transfer-encoding");
  head.chunked = coding.size() == 7 && strncasecmp(coding.data(), "chunked", 7) == 0;
  const std::string_view connection = FieldOf(head.fields, "connection");
  head.close = connection.size() == 5 && strncasecmp(connection.data(), "close", 5) == 0;
  return head;
}

}  // namespace vllm_router::bench
