// FileDescriptor: owns a file descriptor and closes it on every path. A value; one thread.
#pragma once

#include <unistd.h>

#include <utility>

namespace vllm_router {

class FileDescriptor {
 public:
  explicit FileDescriptor(int number) : number_(number) {}  // negative: none
  ~FileDescriptor() {
    if (number_ >= 0) ::close(number_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool is_open() const { return number_ >= 0; }
  int operator*() const { return number_; }
  // False, with errno, when written data may be lost. REQUIRES: is_open().
  bool Close() { return ::close(std::exchange(number_, -1)) == 0; }

 private:
  int number_;
};

}  // namespace vllm_router
