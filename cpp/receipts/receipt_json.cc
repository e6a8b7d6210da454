#include "receipts/receipt_json.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "base/text.h"

namespace vllm_router {
namespace {

// An object that grows member by member.
class Members {
 public:
  explicit Members(std::string* out) : out_(*out) { out_ += '{'; }
  void End() { out_ += '}'; }

  void Name(std::string_view name) {
    if (!first_) out_ += ',';
    first_ = false;
    AppendJsonQuoted(name, &out_);
    out_ += ':';
  }
  void Null(std::string_view name) {
    Name(name);
    out_ += "null";
  }
  void Count(std::string_view name, uint64_t number) {
    Name(name);
    out_ += Concat(number);
  }
  // kNone is null.
  void Number(std::string_view name, uint32_t number) {
    if (number == Receipt::kNone) return Null(name);
    Count(name, number);
  }
  void Number(std::string_view name, double number) {
    std::array<char, 40> digits;
    const auto [end, error] =
        std::to_chars(digits.data(), digits.data() + digits.size(), number, std::chars_format::fixed, 4);
    Name(name);
    std::string_view text(digits.data(), static_cast<size_t>(end - digits.data()));
    while (text.ends_with('0')) text.remove_suffix(1);
    out_ += text;
    if (text.ends_with('.')) out_ += '0';
  }
  void Ms(std::string_view name, uint32_t us) {
    if (us == Receipt::kNone) return Null(name);
    Number(name, static_cast<double>(us) / 1000);
  }
  // Empty is null.
  void Text(std::string_view name, std::string_view text) {
    if (text.empty()) return Null(name);
    Name(name);
    AppendJsonQuoted(text, &out_);
  }

 private:
  std::string& out_;
  bool first_ = true;
};

void AddCandidates(const ReceiptLog::Row& row, Members* made, std::string* out) {
  // Those of a receipt may be forgotten before it is.
  if (row.candidates.empty()) return;
  made->Name("candidates");
  std::string_view separator = "[";
  for (const ReceiptLog::Row::Candidate& candidate : row.candidates) {
    out->append(separator);
    separator = ",";
    Members shown(out);
    shown.Text("worker", candidate.worker);
    shown.Count("open", candidate.values.open);
    shown.Number("cached_tokens", candidate.values.cached);
    constexpr float kLargest = 1e15F;
    if (candidate.values.has_cost && std::fabs(candidate.values.cost) < kLargest)
      shown.Number("cost", static_cast<double>(candidate.values.cost));
    shown.End();
  }
  out->push_back(']');
}

void Append(const ReceiptLog::Row& row, std::string* out) {
  const Receipt& receipt = row.receipt;
  const bool matches = receipt.predicted != Receipt::kNone;
  const bool has_miss = matches && receipt.reported != Receipt::kNone;
  Members made(out);
  made.Text("request_id", receipt.request_id());
  made.Text("ts", TimeText(receipt.wall_us));
  made.Text("model", row.model);
  made.Text("route", row.route);
  made.Text("policy", row.policy);
  made.Text("reason", ReasonName(receipt.reason));
  made.Text("worker", row.worker);
  made.Text("arm", ArmName(receipt.arm));
  made.Number("predicted_cached_tokens", receipt.predicted);
  made.Number("reported_cached_tokens", receipt.reported);
  made.Number("prompt_tokens", receipt.prompt);
  made.Number("miss_tokens", has_miss ? receipt.miss_tokens() : Receipt::kNone);
  if (matches) {
    made.Name("best_match");
    Members best(out);
    best.Text("worker", row.best_worker);
    best.Number("cached_tokens", receipt.best);
    best.End();
  } else {
    made.Null("best_match");
  }
  made.Number("foregone_tokens", matches ? receipt.foregone_tokens() : Receipt::kNone);
  made.Name("load");
  Members load(out);
  load.Count("open", receipt.open);
  load.Number("best_open", matches ? receipt.best_open : Receipt::kNone);
  load.Count("queued_tokens", receipt.queued_tokens);
  load.End();
  AddCandidates(row, &made, out);
  made.Ms("queue_ms", receipt.queue_us);
  made.Number("decision_us", receipt.decision_us);
  made.Ms("ttft_ms", receipt.first_token_us);
  made.Count("attempts", receipt.attempts);
  made.Text("end", row.end);
  made.Count("status", receipt.status);
  if (receipt.tenant != 0) made.Text("tenant", row.tenant);
  if (receipt.priority_class != 0) made.Text("class", row.priority_class);
  if (receipt.prefill_worker != Receipt::kNone) made.Text("prefill_worker", row.prefill_worker);
  if (receipt.pd_uncached != 0) {
    made.Count("pd_uncached_tokens", receipt.pd_uncached);
    made.Count("pd_saved_tokens", receipt.pd_saved);
  }
  made.End();
}

}  // namespace

std::string ReceiptJson(const ReceiptLog::Row& row) {
  std::string out;
  Append(row, &out);
  return out;
}

std::string ReceiptsJson(const ReceiptLog::Found& found) {
  std::string out;
  Members made(&out);
  made.Name("receipts");
  out += '[';
  for (const ReceiptLog::Row& row : found.rows) {
    if (&row != &found.rows.front()) out += ',';
    Append(row, &out);
  }
  out += ']';
  made.Count("kept", found.kept);
  made.Count("dropped", found.overwritten);
  if (found.matching == 0) {
    made.Null("reported_share");
  } else {
    made.Number("reported_share", static_cast<double>(found.reporting) / static_cast<double>(found.matching));
  }
  made.End();
  return out;
}

}  // namespace vllm_router
