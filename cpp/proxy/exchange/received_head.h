// ReceivedHead: the head of a client's request, from its first byte until nothing is sent again. It is used as a pointer
// to a RequestHead, which is null before all of it has arrived, and after Release():
//
//   while (head.BeginParsing()…)      head.Arrived();      head->path      head.Release();
//
// Belongs to one Request. One thread.
#pragma once

#include <memory>
#include <string>

#include "http/head_parser.h"

namespace vllm_router {

struct IoThread;

class ReceivedHead {
 public:
  explicit ReceivedHead(IoThread& thread) : thread_(thread) {}
  ReceivedHead(const ReceivedHead&) = delete;
  ReceivedHead& operator=(const ReceivedHead&) = delete;
  ~ReceivedHead() { Release(); }

  // A parser of the thread's, for the bytes that arrive. Once.
  RequestHeadParser& BeginParsing();
  // REQUIRES: the parser is done.
  void Arrived() { head_ = &parser_->head(); }
  void Release();

  explicit operator bool() const { return head_ != nullptr; }
  const RequestHead* get() const { return head_; }
  const RequestHead& operator*() const { return *head_; }
  const RequestHead* operator->() const { return head_; }

  // What workers and steps get instead of what the client wrote. REQUIRES for both: it is not null.
  void ReplacePath(std::string path);
  // `target` has a query, which counts.
  void ReplaceQueryBy(std::string target);

 private:
  struct Replaced {
    std::string path;
    std::string target;
  };
  Replaced& Replace();

  IoThread& thread_;
  std::unique_ptr<RequestHeadParser> parser_;
  const RequestHead* head_ = nullptr;
  std::unique_ptr<Replaced> replaced_;  // null: the head is as it came
};

}  // namespace vllm_router
