// Boost.Beast's reading of a message, to hold ours against: a parser with years of public use, more lenient than ours.
// What we accept, Beast has to accept, too, and take for the same.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/beast/http/basic_parser.hpp>

#include "base/header_field.h"
#include "base/text.h"
#include "fuzz.h"

namespace vllm_router {

template <bool is_request>
class BeastReader final : public boost::beast::http::basic_parser<is_request> {
 public:
  explicit BeastReader(bool to_head = false) {
    this->eager(true);
    this->skip(to_head);
    this->header_limit(1 << 20);
    this->body_limit(boost::none);
  }

  // Reads until the message has ended, or the bytes have; how many it used.
  size_t Read(std::string_view bytes) {
    size_t used = 0;
    while (!this->is_done() && !failed && used < bytes.size()) {
      boost::beast::error_code ec;
      const size_t step = this->put(boost::asio::const_buffer(bytes.data() + used, bytes.size() - used), ec);
      used += step;
      if (ec == boost::beast::http::error::need_more) break;
      failed = ec.failed();
    }
    return used;
  }

  bool failed = false;
  std::string method, target, reason, body;
  int version = 0;  // 10 or 11
  int status = 0;
  std::vector<std::pair<std::string, std::string>> fields;  // those of the head, then trailers

 private:
  using Code = boost::beast::error_code;
  using View = boost::beast::string_view;
  void on_request_impl(
      boost::beast::http::verb, View the_method, View the_target, int the_version, Code&) override {
    method = the_method;
    target = the_target;
    version = the_version;
  }
  void on_response_impl(int the_status, View the_reason, int the_version, Code&) override {
    status = the_status;
    reason = the_reason;
    version = the_version;
  }
  void on_field_impl(boost::beast::http::field, View name, View value, Code&) override {
    fields.emplace_back(name, value);
  }
  void on_header_impl(Code&) override {}
  void on_body_init_impl(const boost::optional<uint64_t>&, Code&) override {}
  size_t on_body_impl(View data, Code&) override {
    body += data;
    return data.size();
  }
  void on_chunk_header_impl(uint64_t, View, Code&) override {}
  size_t on_chunk_body_impl(uint64_t, View data, Code&) override {
    body += data;
    return data.size();
  }
  void on_finish_impl(Code&) override {}
};

template <typename Head, bool is_request>
void CheckFields(const Head& head, const BeastReader<is_request>& beast) {
  FUZZ_CHECK(head.fields.size() == beast.fields.size());
  for (size_t i = 0; i < head.fields.size(); ++i) {
    FUZZ_CHECK(head.fields[i].name == beast.fields[i].first);
    FUZZ_CHECK(head.fields[i].value == beast.fields[i].second);
  }
}

// Beast also judges the list in Proxy-Connection, a field that we drop unread.
template <typename Head>
bool HasProxyConnection(const Head& head) {
  for (const HeaderField& field : head.fields) {
    if (EqualsIgnoreCase(field.name, "proxy-connection")) return true;
  }
  return false;
}

}  // namespace vllm_router
