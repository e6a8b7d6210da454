#include "http/redirect.h"

#include <algorithm>

#include "base/header_field.h"
#include "base/text.h"

namespace vllm_router {
namespace {

bool TakePrefix(std::string_view* text, std::string_view prefix) {
  if (!EqualsIgnoreCase(text->substr(0, prefix.size()), prefix)) return false;
  text->remove_prefix(prefix.size());
  return true;
}

std::string_view WithoutDefaultPort(std::string_view authority, bool tls) {
  const std::string_view port = tls ? ":443" : ":80";
  if (authority.ends_with(port)) authority.remove_suffix(port.size());
  return authority;
}

// Takes the worker's prefix off a path. False: it does not begin with it.
bool TakePathPrefix(std::string_view* path, std::string_view prefix) {
  if (!path->starts_with(prefix)) return false;
  const std::string_view rest = path->substr(prefix.size());
  const bool ends_a_segment = rest.empty() || rest[0] == '/' || rest[0] == '?' || rest[0] == '#';
  if (ends_a_segment) *path = rest;
  return ends_a_segment;
}

// The first of several: the one nearest to the client.
std::string_view FirstOf(const RequestHead& head, std::string_view name) {
  const std::string_view value = FindHeader(head.fields, name).value_or("");
  return TrimBlanks(value.substr(0, value.find(',')));
}

// A host with or without a port, and nothing that would lead elsewhere in a URL.
bool IsAuthority(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    const bool is_alphanumeric = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    return is_alphanumeric || std::string_view("-._~:[]").find(c) != std::string_view::npos;
  });
}

// A path that browsers take for a host, if nothing stands in front of it.
bool LeadsToHost(std::string_view path) { return path.starts_with("//") || path.starts_with("/\\"); }

}  // namespace

std::optional<std::string> RouterLocation(std::string_view location, const RedirectEnds& ends) {
  std::string_view rest = location;
  bool tls = ends.worker_tls;
  if (TakePrefix(&rest, "https://")) {
    tls = true;
  } else if (TakePrefix(&rest, "http://")) {
    tls = false;
  } else if (!TakePrefix(&rest, "//")) {
    const bool has_prefix =
        !ends.worker_prefix.empty() && rest.starts_with('/') && TakePathPrefix(&rest, ends.worker_prefix);
    if (!has_prefix || LeadsToHost(rest)) return std::nullopt;
    return Concat(rest.starts_with('/') ? "" : "/", rest);
  }
  const size_t path_at = std::min(rest.find_first_of("/?#"), rest.size());
  const std::string_view authority = rest.substr(0, path_at);
  std::string_view path = rest.substr(path_at);
  // The authority was made from Host, whatever the scheme beside it.
  const auto is = [&](std::string_view host, bool host_tls) {
    return !host.empty() &&
           (EqualsIgnoreCase(authority, host) ||
            EqualsIgnoreCase(WithoutDefaultPort(authority, tls), WithoutDefaultPort(host, host_tls)));
  };
  const bool is_worker = is(ends.worker_authority, ends.worker_tls);
  if (!is_worker && !is(ends.client_host, ends.scheme == "https")) return std::nullopt;
  if (!TakePathPrefix(&path, ends.worker_prefix)) return std::nullopt;
  const std::string_view slash = path.starts_with('/') ? "" : "/";
  if (ends.authority.empty()) return LeadsToHost(path) ? std::nullopt : std::optional(Concat(slash, path));
  const bool is_meant = !is_worker && tls != ends.worker_tls;
  const std::string_view scheme = !is_meant ? ends.scheme : tls ? "https" : "http";
  return Concat(scheme, "://", ends.authority, slash, path);
}

CalledAs ReadCalledAs(const RequestHead& head, bool tls, bool trust_forwarded) {
  CalledAs called{.scheme = tls ? "https" : "http", .authority = head.authority};
  if (trust_forwarded) {
    const std::string_view scheme = FirstOf(head, "x-forwarded-proto");
    if (EqualsIgnoreCase(scheme, "https")) called.scheme = "https";
    if (EqualsIgnoreCase(scheme, "http")) called.scheme = "http";
    const std::string_view host = FirstOf(head, "x-forwarded-host");
    if (IsAuthority(host)) called.authority = host;
  }
  if (!IsAuthority(called.authority)) called.authority = {};
  return called;
}

}  // namespace vllm_router
