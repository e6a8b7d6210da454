#include "proxy/exchange/received_head.h"

#include <utility>

#include "proxy/thread/io_thread.h"

namespace vllm_router {

RequestHeadParser& ReceivedHead::BeginParsing() {
  parser_ = thread_.request_parsers.Acquire();
  parser_->Reset();
  return *parser_;
}

void ReceivedHead::Release() {
  head_ = nullptr;
  thread_.request_parsers.Release(std::move(parser_));
}

ReceivedHead::Replaced& ReceivedHead::Replace() {
  if (replaced_ == nullptr) replaced_ = std::make_unique<Replaced>();
  return *replaced_;
}

void ReceivedHead::ReplacePath(std::string path) {
  Replaced& replaced = Replace();
  replaced.path = std::move(path);
  parser_->ReplacePath(replaced.path);
}

void ReceivedHead::ReplaceQueryBy(std::string target) {
  Replaced& replaced = Replace();
  replaced.target = std::move(target);
  parser_->ReplaceQueryBy(replaced.target);
}

}  // namespace vllm_router
