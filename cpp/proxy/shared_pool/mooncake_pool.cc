#include "proxy/shared_pool/mooncake_pool.h"

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/text.h"
#include "base/time_units.h"
#include "shared_pool/pool_report.h"

namespace vllm_router {
namespace {

constexpr std::string_view kTarget = "/batch_query_keys?keys=";
constexpr int kLeaderMissing = 503;  // this master is not the active one
constexpr int64_t kWarnAgainNanos = 60'000'000'000;

std::string TargetOf(const std::vector<std::string>& keys) {
  std::string target(kTarget);
  for (const std::string& key : keys) target.append(&key == &keys.front() ? "" : ",").append(key);
  return target;
}

std::string Described(const std::vector<std::shared_ptr<const PageLayout>>& layouts) {
  std::string text;
  for (const auto& layout : layouts) text.append(text.empty() ? "" : "; ").append(layout->Describe());
  return text;
}

}  // namespace

// Outlives its request during a name lookup, which cannot be cancelled.
struct MooncakePool::Run {
  Run(HttpClient& http, SharedPoolCounts& counts, PagedPrompt prompt)
      : http(http), counts(counts), prompt(std::move(prompt)) {}

  HttpClient& http;
  SharedPoolCounts& counts;
  CancelScope scope{{}};           // of its requests alone
  CancelScope* waiting = nullptr;  // the request's; null: none any more
  PagedPrompt prompt;
  std::vector<std::shared_ptr<const PageLayout>> layouts;  // more than one: to be queried for
  std::optional<PageQuery> query;                          // once there is one layout
  std::vector<PageState> known;                            // before the query
  int64_t begun_ns = 0;
  size_t master = 0;    // the last one that was queried
  bool sent = false;    // a request
  bool probe = false;   // during a pause
  bool paused = false;  // so none is sent
  bool taken = false;   // a response
  bool failed = false;
  bool ended = false;  // all responses are there, or none is waited for any more
};

void MooncakePool::Configure(std::vector<PageLayout> layouts, std::vector<WorkerUrl> masters) {
  std::vector<std::shared_ptr<const PageLayout>> shared;
  for (PageLayout& layout : layouts) shared.push_back(std::make_shared<const PageLayout>(std::move(layout)));
  const MutexLock lock(mutex_);
  layouts_ = possible_ = std::move(shared);
  masters_ = std::move(masters);
  master_ = 0;
  misses_ = hits_ = 0;
  results_.Clear();
  backoff_.Worked();
}

MooncakePool::State MooncakePool::state() const {
  const MutexLock lock(mutex_);
  State state{.paused = backoff_.paused(), .hits = hits_};
  for (const WorkerUrl& master : masters_) state.masters.push_back(master.url);
  for (const auto& layout : layouts_) state.layouts.push_back(layout->Describe());
  if (!layouts_.empty()) state.page_size = layouts_.front()->form.tokens;
  return state;
}

// Null if there is nothing to query, or not now.
std::shared_ptr<MooncakePool::Run> MooncakePool::Begin(
    PagedPrompt prompt, HttpClient& http, SharedPoolCounts& counts) {
  auto run = std::make_shared<Run>(http, counts, std::move(prompt));
  run->begun_ns = clock_.NowNanos();
  std::vector<Digest256>& pages = run->prompt.pages;
  const MutexLock lock(mutex_);
  // The layout may have changed since the pages were hashed.
  if (pages.empty() || masters_.empty() || layouts_.empty() || layouts_.front()->form != run->prompt.form)
    return nullptr;
  run->layouts = layouts_;
  if (layouts_.size() == 1) {
    run->query.emplace(layouts_.front(), std::move(pages), verify_);
    const PageQuery& query = *run->query;
    run->known.resize(query.size(), PageState::kUnknown);
    uint64_t found = 0;
    // Behind a gap as long as a group little is known.
    for (size_t i = 0, gap = 0; i < query.size() && gap < PageQuery::kGroupKeys; ++i) {
      run->known[i] = results_.Find(query.page(i), run->begun_ns);
      gap = run->known[i] == PageState::kUnknown ? gap + 1 : 0;
      found += gap == 0;
      run->query->Know(i, run->known[i]);
    }
    counts.Told(SharedCacheKey::kCached, found);
  }
  return run;
}

// Once for each run, before its first request.
bool MooncakePool::MayQuery(Run& run) {
  if (run.sent || run.paused) return run.sent;
  const MutexLock lock(mutex_);
  run.probe = backoff_.paused();
  run.sent = backoff_.MayQuery(run.begun_ns);
  run.paused = !run.sent;
  return run.sent;
}

// A few more than the limit may be sent by threads that ask at once.
bool MooncakePool::HasRoom() const { return requests_.load(std::memory_order_relaxed) < kMaxPoolRequests; }

void MooncakePool::SendAll(const std::shared_ptr<Run>& run) {
  if (!run->query && !run->layouts.empty() && HasRoom() && MayQuery(*run)) {
    std::vector<std::string> keys;
    for (const auto& layout : run->layouts)
      keys.push_back(layout->KeyOf(run->prompt.pages.front(), layout->suffixes.front()));
    Spawn(Send(run, 0, std::move(keys)));
    return;
  }
  while (run->query) {
    std::optional<PageQuery::Request> request = run->query->Next();
    if (!request) break;
    if (HasRoom() && MayQuery(*run)) {
      Spawn(Send(run, request->number, std::move(request->keys)));
    } else {
      run->query->Fail(request->number);
    }
  }
  if (!run->query || run->query->done()) EndWait(*run);
}

void MooncakePool::EndWait(Run& run) {
  run.ended = true;
  if (run.waiting != nullptr) run.waiting->EndPause();
}

// From the active master; if it is another one than before, from that.
Task<StatusOr<HttpResponse>> MooncakePool::Get(Run& run, std::string target) {
  StatusOr<HttpResponse> response = absl::UnavailableError("there is no master");
  for (size_t attempt = 0;; ++attempt) {
    WorkerUrl master;
    size_t number;
    size_t masters;
    {
      const MutexLock lock(mutex_);
      if (masters_.empty()) co_return response;
      masters = masters_.size();
      run.master = number = master_ % masters;
      master = masters_[number];
    }
    response = co_await run.http.Get(&run.scope, std::move(master), target, timeout_ms_);
    const bool elsewhere =
        response.ok() ? response->status == kLeaderMissing : !absl::IsDeadlineExceeded(response.status());
    if (run.ended || !elsewhere || attempt + 1 >= masters) co_return response;
    if (response.ok()) run.counts.Failed(SharedCacheError::kNotLeader);
    const MutexLock lock(mutex_);
    if (master_ == number) master_ = (number + 1) % std::max<size_t>(1, masters_.size());
  }
}

Task<void> MooncakePool::Send(std::shared_ptr<Run> run, uint32_t number, std::vector<std::string> keys) {
  std::string target = TargetOf(keys);
  requests_.fetch_add(1, std::memory_order_relaxed);
  const StatusOr<HttpResponse> response = co_await Get(*run, std::move(target));
  requests_.fetch_sub(1, std::memory_order_relaxed);
  if (run->ended) co_return;
  if (run->http.stopped()) {
    EndWait(*run);
    co_return;
  }
  StatusOr<std::vector<bool>> there = absl::UnavailableError("");
  if (!response.ok()) {
    const bool late = absl::IsDeadlineExceeded(response.status());
    Fail(
        *run, late ? SharedCacheError::kTimeout : SharedCacheError::kConnect,
        std::string(response.status().message()));
  } else if (response->status != 200) {
    Fail(
        *run, response->status == kLeaderMissing ? SharedCacheError::kNotLeader : SharedCacheError::kHttp,
        Concat("status ", response->status));
  } else if (response->body.size() > kMaxPoolReply) {
    Fail(*run, SharedCacheError::kJson, Concat("a reply of more than ", kMaxPoolReply, " bytes"));
  } else {
    there = KeysInReply(response->body, keys);
    if (!there.ok()) Fail(*run, SharedCacheError::kJson, std::string(there.status().message()));
  }
  if (there.ok()) {
    run->taken = true;
    const auto found = static_cast<uint64_t>(std::ranges::count(*there, true));
    run->counts.Told(SharedCacheKey::kFound, found);
    run->counts.Told(SharedCacheKey::kMissing, keys.size() - found);
  }
  if (!run->query) {
    if (there.ok()) Learn(*run, *there);
    if (!run->query) run->layouts.clear();
  } else if (there.ok()) {
    run->query->Take(number, *there);
  } else {
    run->query->Fail(number);
  }
  SendAll(run);
}

// Keeps the first layout that has the page.
void MooncakePool::Learn(Run& run, const std::vector<bool>& there) {
  const auto found = std::ranges::find(there, true);
  if (found == there.end()) return;
  const std::shared_ptr<const PageLayout> layout = run.layouts[static_cast<size_t>(found - there.begin())];
  run.layouts = {layout};
  run.query.emplace(layout, std::move(run.prompt.pages), verify_);
  run.known.resize(run.query->size(), PageState::kUnknown);
  const MutexLock lock(mutex_);
  if (layouts_.size() == 1 || std::ranges::find(layouts_, layout) == layouts_.end()) return;
  layouts_ = {layout};
  Log(LogLevel::kInfo, Concat("shared cache: pages are kept as ", layout->Describe()));
}

void MooncakePool::Fail(Run& run, SharedCacheError error, std::string_view reason) {
  if (std::exchange(run.failed, true)) return;  // one query, one failure
  run.counts.Failed(error);
  std::string master;
  {
    const int64_t now_ns = clock_.NowNanos();
    const MutexLock lock(mutex_);
    backoff_.Failed(now_ns);
    // A master that does not respond may be gone.
    if (error == SharedCacheError::kTimeout && !masters_.empty() && master_ % masters_.size() == run.master)
      master_ = (run.master + 1) % masters_.size();
    if (now_ns < warn_again_ns_) return;
    warn_again_ns_ = now_ns + kWarnAgainNanos;
    if (run.master < masters_.size()) master = masters_[run.master].url;
  }
  Log(LogLevel::kWarning,
      Concat("Shared cache query failed: ", master, ": ", reason, "; routing without it"));
}

std::optional<SharedHits> MooncakePool::End(Run& run, bool cancelled) {
  // With a response the master is well: what the others would have told stays unknown.
  if (!std::exchange(run.ended, true) && !cancelled && !run.taken && run.sent)
    Fail(run, SharedCacheError::kTimeout, Concat("no complete response in ", timeout_ms_, " ms"));
  run.scope.Cancel();
  const int64_t now_ns = clock_.NowNanos();
  if (run.sent) run.counts.queries.Add(now_ns - run.begun_ns);
  std::vector<BlockRange> pages;
  std::string no_hits;
  {
    const MutexLock lock(mutex_);
    if (run.probe && run.sent && cancelled) backoff_.Left();
    if (run.sent && !cancelled && !run.failed) backoff_.Worked();
    if (run.query) {
      pages = run.query->Ranges();
      const bool is_current = layouts_.size() == 1 && layouts_.front() == run.layouts.front();
      for (size_t i = 0; is_current && i < run.known.size(); ++i) {
        if (run.query->state(i) != run.known[i])
          results_.Store(run.query->page(i), run.query->state(i), now_ns);
      }
    }
    if (!pages.empty()) {
      ++hits_;
      misses_ = 0;
    } else if (run.sent && !cancelled && !run.failed && ++misses_ == kQueriesWithoutHit) {
      if (hits_ == 0) no_hits = Described(possible_);
      layouts_ = possible_;
    }
  }
  if (!no_hits.empty()) {
    Log(LogLevel::kWarning,
        Concat(
            "shared cache: none of ", kQueriesWithoutHit, " prompts has a page in the pool, whose keys are ",
            no_hits, "; if the workers write to it, set --shared-cache-layout"));
  }
  if (cancelled || (pages.empty() && (run.failed || run.paused))) return std::nullopt;
  SharedHits hits(BlocksOfPages(pages, run.prompt.form.tokens, run.prompt.block_tokens, run.prompt.blocks));
  run.counts.Hits(hits.total(), run.prompt.blocks);
  return hits;
}

Task<std::optional<SharedHits>> MooncakePool::Query(
    HttpClient& http, SharedPoolCounts& counts, CancelScope& scope, PagedPrompt prompt) {
  const std::shared_ptr<Run> run = Begin(std::move(prompt), http, counts);
  if (run == nullptr) co_return std::nullopt;
  run->waiting = &scope;
  SendAll(run);
  if (!run->ended) co_await scope.Pause(http.loop(), timeout_ms_ * kNanosPerMs);
  run->waiting = nullptr;
  co_return End(*run, scope.cancelled() || http.stopped());
}

void MooncakePool::QueryLater(HttpClient& http, SharedPoolCounts& counts, PagedPrompt prompt) {
  if (background_queries_.fetch_add(1) >= kMaxBackgroundPoolQueries) {
    background_queries_.fetch_sub(1);
    return;
  }
  Spawn(RunLater(http, counts, std::move(prompt)));
}

Task<void> MooncakePool::RunLater(HttpClient& http, SharedPoolCounts& counts, PagedPrompt prompt) {
  CancelScope scope({});
  co_await Query(http, counts, scope, std::move(prompt));
  background_queries_.fetch_sub(1);
}

}  // namespace vllm_router
