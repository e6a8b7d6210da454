#include "proxy/dashboard/dashboard_page.h"

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <dashboard_page.inc>  // kPage, kPageGzip, kStyleHash, kScriptHash
#include "base/text.h"

namespace vllm_router {
namespace {

struct Form {
  std::vector<HeaderField> fields;
  std::shared_ptr<const AdminReply> reply;
};

template <size_t kSize>
std::string BytesOf(const unsigned char (&bytes)[kSize]) {
  return std::string(reinterpret_cast<const char*>(bytes), kSize);
}

// The page may run its own script and style, and speak to where it came from; nothing else.
const std::string& Policy() {
  static const auto* policy = new std::string(Concat(
      "default-src 'none'; script-src '", kScriptHash, "'; style-src '", kStyleHash,
      "'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"));
  return *policy;
}

const Form* MakeForm(std::string page, std::string_view coding) {
  auto* const form = new Form;
  form->fields = {
      {"Content-Security-Policy", Policy()},
      {"X-Content-Type-Options", "nosniff"},
      {"Referrer-Policy", "no-referrer"},
      {"Cache-Control", "no-store"},
      {"Vary", "Accept-Encoding"}};
  if (!coding.empty()) form->fields.push_back({"Content-Encoding", coding});
  form->reply = std::make_shared<const AdminReply>(AdminReply{
      .body = std::move(page), .content_type = "text/html; charset=utf-8", .fields = form->fields});
  return form;
}

bool AcceptsGzip(std::span<const HeaderField> request) {
  for (const HeaderField& field : request) {
    if (!EqualsIgnoreCase(field.name, "accept-encoding")) continue;
    std::string_view rest = field.value;
    while (!rest.empty()) {
      const std::string_view one = rest.substr(0, rest.find(','));
      rest.remove_prefix(std::min(rest.size(), one.size() + 1));
      const std::string_view coding = TrimBlanks(one.substr(0, one.find(';')));
      if (!EqualsIgnoreCase(coding, "gzip")) continue;
      const size_t weight = one.find("q=");
      return weight == std::string_view::npos ||
             TrimBlanks(one.substr(weight + 2)).find_first_not_of("0.") != std::string_view::npos;
    }
  }
  return false;
}

}  // namespace

AdminReply DashboardPage(std::span<const HeaderField> request) {
  static const Form* const plain = MakeForm(BytesOf(kPage), {});
  static const Form* const compressed = MakeForm(BytesOf(kPageGzip), "gzip");
  return AdminReply::Of((AcceptsGzip(request) ? compressed : plain)->reply);
}

}  // namespace vllm_router
