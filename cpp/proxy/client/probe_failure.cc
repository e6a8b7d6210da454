#include "proxy/client/probe_failure.h"

#include "base/text.h"

namespace vllm_router {
namespace {

std::string_view KeyRemedy(HttpClient::KeyUse key) {
  switch (key) {
    case HttpClient::KeyUse::kSent:
      return "--api-key is not the engine's";
    case HttpClient::KeyUse::kNone:
      return "the engine wants a key; set --api-key to the engine's";
    case HttpClient::KeyUse::kWithheld:
      break;
  }
  return "the engine wants a key, and it does not receive --api-key, since it was added by a request without "
         "an admin key; set --admin-api-key-file and add it again";
}

// Where the path before every target begins with a version, as clients' base URLs do; npos: it does not.
size_t VersionAt(std::string_view prefix) {
  constexpr std::string_view kVersion = "/v1";
  const size_t at = prefix.find(kVersion);
  if (at == std::string_view::npos) return at;
  const size_t end = at + kVersion.size();
  return end == prefix.size() || prefix[end] == '/' ? at : std::string_view::npos;
}

}  // namespace

std::string ProbeFailure(
    const WorkerUrl& url, std::string_view target, const StatusOr<HttpResponse>& response,
    HttpClient::KeyUse key) {
  if (!response.ok()) {
    return Concat("did not respond to GET ", target, ": ", std::string(response.status().message()));
  }
  std::string text = Concat("returned ", response->status, " to GET ", target);
  if (IsRefusal(response)) return text += Concat(": ", KeyRemedy(key));
  const size_t version = response->status == 404 ? VersionAt(url.prefix) : std::string_view::npos;
  if (version != std::string_view::npos) {
    const std::string_view root =
        std::string_view(url.base).substr(0, url.base.size() - (url.prefix.size() - version));
    text += Concat(": its URL should end before /v1: ", root);
  }
  return text;
}

}  // namespace vllm_router
