// AccessLogLine: one exchange as one line of the access log, for machines or for people.
//
//   json  {"ts":"2026-11-21T10:50:37.123Z","request_id":"chatcmpl-…","client":"10.0.0.7","method":"POST", …}
//   text  2026-11-21 10:50:37.123 10.0.0.7 "POST /v1/chat/completions" 200 done worker=http://a:8000 …
//
// A field that does not apply is left out; docs/reference/access_log.md lists all. Never logged: the
// query string, header values other than the request ID, any part of a body. Whatever a client sends,
// the output stays one line and valid JSON. Texts are cut after kMaxLoggedTextBytes. Cost: about 0.3 us,
// no allocation once `out` has grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "proxy/telemetry/request_info.h"

namespace vllm_router {

class AccessLogLine {
 public:
  // `policy`: its name.
  explicit AccessLogLine(std::string_view policy) : policy_(policy) {}

  // `number`: the line's number from LineWriter.
  void AppendJson(const RequestInfo& record, uint64_t number, std::string* out);
  void AppendText(const RequestInfo& record, uint64_t number, std::string* out);

 private:
  std::string_view Time(int64_t wall_us, char separator);

  const std::string policy_;
  int64_t second_ = -1;  // the second that time_ shows
  char time_[32] = {};   // many exchanges begin in the same second
};

}  // namespace vllm_router
