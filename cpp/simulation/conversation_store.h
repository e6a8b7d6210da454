// ConversationStore: the conversations that a simulated worker keeps, by OpenAI's API.
//
//   POST               /v1/conversations               {"metadata": {…}, "items": [A]}: conv_1 with the item A
//   GET, POST, DELETE  /v1/conversations/conv_1        the conversation; POST replaces its metadata
//   GET, POST          /v1/conversations/conv_1/items  its items in order; POST appends those of {"items": [B]}
//   GET, DELETE        /v1/conversations/conv_1/items/msg_2
//   POST               /v1/responses                   {"conversation": "conv_1", "input": [C]}: as [A, B, C], which the
//                                                      conversation has afterwards, and the response's items
//
// Items without an id get one. Conversations are kept until they are deleted or the worker ends. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/mutex.h"
#include "base/status.h"

namespace vllm_router {

class ConversationStore {
 public:
  struct Request {
    std::string_view method;
    std::string_view path;  // /v1/conversations, or below it
    std::string_view body;
    std::string_view id;  // behind "conv_" in the id of what it makes; no other request has it
    int64_t now = 0;      // seconds since 1970
  };
  // The body of the response. NotFound (404): what the path names is not known; InvalidArgument (400): the body;
  // Unimplemented (405): the path has no such method.
  StatusOr<std::string> Serve(const Request& request);

  // A request to /v1/responses in a conversation.
  struct Turn {
    std::string conversation;
    std::string body;    // as if the client had sent the whole conversation
    std::string input;   // its new items, separated by commas
    std::string output;  // those of the response, likewise
  };
  // nullopt: the body names no conversation, or is malformed. NotFound: an unknown one; InvalidArgument: its input.
  StatusOr<std::optional<Turn>> Begin(std::string_view body);
  // The response is complete.
  void End(const Turn& turn);

 private:
  using Items = std::vector<std::pair<std::string, std::string>>;  // ids and JSON
  struct Conversation {
    int64_t created = 0;
    uint64_t made = 0;  // ids of items
    std::string metadata;
    Items items;
  };

  StatusOr<std::string> ServeOne(const Request& request, const std::string& id, std::string_view below)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Appends the elements of a JSON list, and returns the position of the first one.
  static StatusOr<size_t> Append(std::string_view list, const std::string& id, Conversation* conversation);

  Mutex mutex_;
  std::map<std::string, Conversation> conversations_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace vllm_router
