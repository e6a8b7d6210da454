// RedirectFields: Location and Content-Location of a worker's response, where they name the worker, in the router's words
// (http/redirect.h). Both, as Apache's ProxyPassReverse does.
//
//   RedirectFields redirect(response, request, worker, client);
//   WriteClientHead(response, {…, .extra = redirect.fields()}, &head);
#pragma once

#include <array>
#include <span>
#include <string>

#include "base/header_field.h"
#include "http/head.h"
#include "proxy/exchange/upstream_parts.h"
#include "worker/worker_url.h"

namespace vllm_router {

class RedirectFields {
 public:
  // Other responses have no such fields, or none that clients follow.
  static bool MayBeIn(int status) { return status / 100 == 3 || status == 201; }

  RedirectFields(
      const ResponseHead& response, const RequestHead& request, const WorkerUrl& worker,
      const ClientSide& client);
  RedirectFields(const RedirectFields&) = delete;

  // The fields that replace the worker's.
  std::span<const HeaderField> fields() const { return {fields_.data(), size_}; }

 private:
  std::array<std::string, 2> values_;
  std::array<HeaderField, 2> fields_;
  size_t size_ = 0;
};

}  // namespace vllm_router
