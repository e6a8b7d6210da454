// AdminReply: the response of one of our own endpoints.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "base/header_field.h"

namespace vllm_router {

class EventStream;

struct AdminReply {
  int status = 200;
  std::string body;
  std::string_view content_type = "application/json";
  std::string_view error_code;                       // for the access log; empty unless it is an error
  std::shared_ptr<const AdminReply> page = nullptr;  // has the body instead, which other responses share
  std::span<const HeaderField> fields = {};          // more of them; they live forever
  std::shared_ptr<EventStream> stream = nullptr;     // is the body instead (event_stream.h)

  std::string_view text() const { return page != nullptr ? page->body : body; }

  // Without a copy of its body.
  static AdminReply Of(std::shared_ptr<const AdminReply> page) {
    return {
        .status = page->status,
        .body = {},
        .content_type = page->content_type,
        .error_code = page->error_code,
        .page = page,
        .fields = page->fields};
  }
};

}  // namespace vllm_router
