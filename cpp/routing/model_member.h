// FindModelMember: the member `model` of a request's JSON body, and where its value stands.
//
//   {"messages": [{"model": "no"}], "model": "Qwen\/Qwen3-8B"}      ->   name Qwen/Qwen3-8B, value at 42..58
//
// Of several the last one counts, as in Python's json, which the engines use; a member's name with escapes counts
// as its unescaped form. A body may have 64 MiB, so it is not parsed: strings are skipped, brackets are counted.
// What is no JSON may give any result, since every engine rejects it. A body that is cut off, or a multipart form,
// gives what its beginning shows. Cost: one pass of JsonScanner, no memory. Pure; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vllm_router {

struct ModelMember {
  enum class Kind : uint8_t {
    kNoObject,  // the body is no JSON object
    kMissing,   // the object has no such member, or it is null or an empty string
    kName,
    kOther,  // a value of another type, or a string that is none
  };
  Kind kind = Kind::kNoObject;
  bool whole = false;     // the object was read to its end
  std::string name = {};  // unescaped
  size_t offset = 0;      // of the value, with its quotes; in a form: of the name
  size_t length = 0;
  bool quoted = true;  // the value is a JSON string
};

ModelMember FindModelMember(std::string_view body);
// True if the body is a form of parts, by the request's content type.
bool IsForm(std::string_view content_type);
// The part named `model` of a form; `content_type`: the request's.
ModelMember FindModelInForm(std::string_view content_type, std::string_view body);

}  // namespace vllm_router
