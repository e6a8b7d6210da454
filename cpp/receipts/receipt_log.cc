#include "receipts/receipt_log.h"

#include <algorithm>
#include <cstring>

#include "hashing/hash.h"
#include "policy/cache_prediction.h"
#include "worker/worker.h"

namespace vllm_router {
namespace {

uint32_t Narrow(uint64_t value) {
  return static_cast<uint32_t>(std::min<uint64_t>(value, Receipt::kNone - 1));
}

uint32_t Narrow(const std::optional<uint64_t>& value) { return value ? Narrow(*value) : Receipt::kNone; }

uint32_t MicrosOf(const std::optional<int64_t>& nanos) {
  return nanos ? Narrow(static_cast<uint64_t>(std::max<int64_t>(0, *nanos)) / 1000) : Receipt::kNone;
}

// When the request ended, which is when the receipt was written.
int64_t EndOf(const Receipt& receipt) {
  return receipt.wall_us + (receipt.total_us == Receipt::kNone ? 0 : receipt.total_us);
}

// The newest first, until `visit` returns false or the next one has been overwritten. The number of those that were
// overwritten before.
template <typename Visit>
uint64_t ForEachKept(const ReceiptWriter& writer, Visit visit) {
  const SeqlockRing<Receipt>& ring = writer.ring();
  const uint64_t added = ring.added();
  const uint64_t first = added - std::min<uint64_t>(added, ring.capacity());
  Receipt receipt;
  for (uint64_t number = added; number-- > first;) {
    if (!ring.Read(number, &receipt) || !visit(receipt)) break;
  }
  return first;
}

}  // namespace

// ---- writing

void ReceiptWriter::Write(const ReceiptFacts& facts) {
  const Decision& decision = *facts.decision;
  Receipt receipt{
      .wall_us = facts.wall_us,
      .id_hash = Xxh3(facts.request_id),
      .worker = static_cast<uint32_t>(facts.worker->id),
      .reported = Narrow(facts.cached_tokens),
      .prompt = Narrow(facts.prompt_tokens),
      .open = decision.loads.open,
      .best_open = decision.loads.best_open,
      .queued_tokens = decision.loads.queued_tokens,
      .queue_us = MicrosOf(facts.queue_ns),
      .decision_us = MicrosOf(facts.decision_ns),
      .first_token_us = MicrosOf(facts.first_token_ns),
      .total_us = MicrosOf(facts.total_ns),
      .pd_uncached = facts.pd_uncached,
      .pd_saved = facts.pd_saved,
      .tenant = facts.tenant.empty() ? 0 : log_.NumberOfTenant(facts.tenant),
      .model = NumberOf(facts.model, &model_),
      .policy = NumberOf(facts.policy, &policy_),
      .route = NumberOf(facts.route, &route_),
      .end = NumberOf(facts.end, &end_),
      .priority_class = NumberOf(facts.priority_class, &class_),
      .status = static_cast<uint16_t>(facts.status),
      .reason = decision.reason,
      .arm = decision.arm == Arm::kHoldout ? Arm::kHoldout : Arm::kPolicy,
      .attempts = static_cast<uint8_t>(std::min<uint32_t>(facts.attempts, UINT8_MAX)),
      .id_size = static_cast<uint8_t>(std::min(facts.request_id.size(), Receipt::kLongestId))};
  facts.request_id.copy(receipt.id.data(), receipt.id_size);  // of none too, whose data() is null
  Meet(*facts.worker);
  if (facts.prefill != nullptr) {
    Meet(*facts.prefill);
    receipt.prefill_worker = static_cast<uint32_t>(facts.prefill->id);
  }
  if (const auto prediction = PredictionOf(decision, facts.prompt_tokens, facts.block_tokens)) {
    receipt.predicted = Narrow(prediction->cached);
    receipt.best = Narrow(prediction->best);
    receipt.best_worker = static_cast<uint32_t>(decision.best_worker);
  }
  if (decision.explanation != nullptr) receipt.candidates = log_.Keep(decision, facts);
  ring_.Add(receipt);
}

uint16_t ReceiptWriter::NumberOf(std::string_view name, Last* last) {
  if (name == last->name) return last->number;
  auto found = numbers_.find(name);
  if (found == numbers_.end()) {
    const uint16_t number = log_.NumberOf(name);
    if (number == 0) return 0;  // not to be kept here either
    found = numbers_.emplace(name, number).first;
  }
  last->name = name;
  return last->number = found->second;
}

void ReceiptWriter::Meet(const Worker& worker) {
  const auto id = static_cast<uint32_t>(worker.id);
  if (id == met_) return;
  met_ = id;
  if (workers_.size() >= ReceiptLog::kWorkers) workers_.clear();
  if (workers_.insert(id).second) log_.AddWorker(worker);
}

ReceiptLog::ReceiptLog(size_t threads, const Options& options) : names_(1) {
  for (size_t i = 0; i < threads; ++i) {
    writers_.push_back(std::make_unique<ReceiptWriter>(this, options.per_thread, options.candidates_every));
  }
}

uint16_t ReceiptLog::NumberOf(std::string_view name) {
  if (name.empty() || name.size() > kLongestName) return 0;
  const MutexLock lock(mutex_);
  if (const auto found = numbers_.find(name); found != numbers_.end()) return found->second;
  if (names_.size() == kNames) return 0;
  const auto number = static_cast<uint16_t>(names_.size());
  names_.emplace_back(name);
  numbers_.emplace(name, number);
  return number;
}

// The name in its place was that of the tenant 4,096 numbers before.
uint32_t ReceiptLog::NumberOfTenant(std::string_view name) {
  std::string text(name);
  const MutexLock lock(mutex_);
  if (const auto found = tenant_numbers_.find(text); found != tenant_numbers_.end()) return found->second;
  if (tenants_.empty()) tenants_.resize(kTenants);
  if (++last_tenant_ == 0) ++last_tenant_;
  std::string& place = tenants_[last_tenant_ % kTenants];
  tenant_numbers_.erase(place);
  place = text;
  tenant_numbers_.emplace(std::move(text), last_tenant_);
  return last_tenant_;
}

void ReceiptLog::AddWorker(const Worker& worker) {
  const auto id = static_cast<uint32_t>(worker.id);
  const MutexLock lock(mutex_);
  if (!urls_.emplace(id, worker.url.url).second) return;
  workers_.push_back(id);
  if (workers_.size() <= kWorkers) return;
  urls_.erase(workers_.front());
  workers_.pop_front();
}

// The chosen one first, then the longest matches, then the lowest loads.
uint32_t ReceiptLog::Keep(const Decision& decision, const ReceiptFacts& facts) {
  std::vector<const Explanation::Candidate*> order;
  for (const Explanation::Candidate& candidate : decision.explanation->candidates)
    order.push_back(&candidate);
  const size_t count = std::min(order.size(), kCandidates);
  const auto before = [&decision](const Explanation::Candidate* a, const Explanation::Candidate* b) {
    const bool a_chosen = a->worker == decision.worker;
    const bool b_chosen = b->worker == decision.worker;
    if (a_chosen != b_chosen) return a_chosen;
    if (a->matched != b->matched) return a->matched > b->matched;
    if (a->open_requests != b->open_requests) return a->open_requests < b->open_requests;
    return a->worker < b->worker;
  };
  std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end(), before);
  Candidates kept{.count = static_cast<uint32_t>(count)};
  Decision as_if = decision;  // with a candidate's match
  as_if.explanation = nullptr;
  for (size_t i = 0; i < count; ++i) {
    const Explanation::Candidate& candidate = *order[i];
    ReceiptCandidate& made = kept.list[i];
    made.worker = static_cast<uint32_t>(candidate.worker);
    made.open = Narrow(static_cast<uint64_t>(std::max<int64_t>(0, candidate.open_requests)));
    if (candidate.matched) {
      as_if.matched = std::min(*candidate.matched, decision.total);
      const auto prediction = PredictionOf(as_if, facts.prompt_tokens, facts.block_tokens);
      if (prediction) made.cached = Narrow(prediction->cached);
    }
    made.has_cost = candidate.cost.has_value();
    made.cost = static_cast<float>(candidate.cost.value_or(0));
  }
  const MutexLock lock(mutex_);
  for (size_t i = 0; i < count; ++i) {
    const Explanation::Candidate& candidate = *order[i];
    if (urls_.emplace(kept.list[i].worker, candidate.url).second) workers_.push_back(kept.list[i].worker);
  }
  for (; workers_.size() > kWorkers; workers_.pop_front()) urls_.erase(workers_.front());
  if (++lists_ == 0) ++lists_;
  kept.number = lists_;
  const size_t place = lists_ % kCandidateLists;
  if (candidates_.size() <= place) candidates_.resize(place + 1);
  candidates_[place] = kept;
  return lists_;
}

// ---- reading

std::string ReceiptLog::UrlOf(uint32_t worker) const {
  const auto found = urls_.find(worker);
  return found != urls_.end() ? found->second : std::string();
}

ReceiptLog::Row ReceiptLog::Complete(const Receipt& receipt) const {
  Row row{
      .receipt = receipt,
      .model = names_[receipt.model],
      .policy = names_[receipt.policy],
      .route = names_[receipt.route],
      .end = names_[receipt.end],
      .worker = UrlOf(receipt.worker),
      .best_worker = UrlOf(receipt.best_worker),
      .prefill_worker = UrlOf(receipt.prefill_worker),
      .priority_class = names_[receipt.priority_class],
      .candidates = {}};
  if (receipt.tenant != 0) {
    const std::string& tenant = tenants_[receipt.tenant % kTenants];
    const auto found = tenant_numbers_.find(tenant);
    if (found != tenant_numbers_.end() && found->second == receipt.tenant) row.tenant = tenant;
  }
  if (receipt.candidates == 0) return row;
  const Candidates& kept = candidates_[receipt.candidates % kCandidateLists];
  if (kept.number != receipt.candidates) return row;
  for (size_t i = 0; i < kept.count; ++i)
    row.candidates.push_back({UrlOf(kept.list[i].worker), kept.list[i]});
  return row;
}

ReceiptLog::Wanted ReceiptLog::WantedBy(const ReceiptFilter& filter) const {
  Wanted wanted{.filter = filter};
  const MutexLock lock(mutex_);
  if (filter.model) {
    const auto found = numbers_.find(*filter.model);
    wanted.nothing = found == numbers_.end();
    if (!wanted.nothing) wanted.model = found->second;
  }
  if (filter.worker) {
    for (const auto& [worker, url] : urls_) {
      if (url == *filter.worker) wanted.workers.push_back(worker);
    }
    wanted.nothing |= wanted.workers.empty();
  }
  return wanted;
}

bool ReceiptLog::Wanted::Includes(const Receipt& receipt) const {
  if (nothing || receipt.wall_us < filter.since_us || receipt.miss_tokens() < filter.min_miss_tokens)
    return false;
  if (filter.reason && receipt.reason != *filter.reason) return false;
  if (filter.arm && receipt.arm != *filter.arm) return false;
  if (model && receipt.model != *model) return false;
  return workers.empty() || std::ranges::find(workers, receipt.worker) != workers.end();
}

// Writers may need the mutex, so nothing is searched under it.
ReceiptLog::Found ReceiptLog::Find(const ReceiptFilter& filter) const {
  const Wanted wanted = WantedBy(filter);
  Found found;
  std::vector<Receipt> newest;
  for (const std::unique_ptr<ReceiptWriter>& writer : writers_) {
    size_t taken = 0;
    found.overwritten += ForEachKept(*writer, [&](const Receipt& receipt) {
      ++found.kept;
      if (!wanted.Includes(receipt)) return true;
      ++found.matching;
      found.reporting += receipt.reported != Receipt::kNone ? 1 : 0;
      if (taken++ < filter.last) newest.push_back(receipt);
      return true;
    });
  }
  const auto later = [](const Receipt& a, const Receipt& b) { return EndOf(a) > EndOf(b); };
  std::stable_sort(newest.begin(), newest.end(), later);
  if (newest.size() > filter.last) newest.resize(filter.last);
  const MutexLock lock(mutex_);
  for (const Receipt& receipt : newest) found.rows.push_back(Complete(receipt));
  return found;
}

ReceiptLog::News ReceiptLog::AddedSince(Mark* mark, size_t most) const {
  const bool is_first = mark->added.empty();
  mark->added.resize(writers_.size());
  News news;
  for (size_t i = 0; i < writers_.size(); ++i) {
    const SeqlockRing<Receipt>& ring = writers_[i]->ring();
    const uint64_t end = ring.added();
    const uint64_t begin = is_first ? end : mark->added[i];
    mark->added[i] = end;
    news.added += end - begin;
    Receipt receipt;
    for (uint64_t number = end - std::min<uint64_t>(end - begin, most); number < end; ++number) {
      if (ring.Read(number, &receipt)) news.receipts.push_back(receipt);
    }
  }
  return news;
}

ReceiptLog::Row ReceiptLog::RowOf(const Receipt& receipt) const {
  const MutexLock lock(mutex_);
  return Complete(receipt);
}

std::optional<ReceiptLog::Row> ReceiptLog::FindOne(std::string_view request_id) const {
  const uint64_t hash = Xxh3(request_id);
  std::optional<Receipt> found;
  for (const std::unique_ptr<ReceiptWriter>& writer : writers_) {
    ForEachKept(*writer, [&](const Receipt& receipt) {
      if (receipt.id_hash != hash || !request_id.starts_with(receipt.request_id())) return true;
      if (!found || EndOf(receipt) > EndOf(*found)) found = receipt;
      return false;
    });
  }
  if (!found) return std::nullopt;
  const MutexLock lock(mutex_);
  return Complete(*found);
}

}  // namespace vllm_router
