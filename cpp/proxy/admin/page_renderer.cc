#include "proxy/admin/page_renderer.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/time_units.h"
#include "proxy/client/http_client.h"
#include "proxy/telemetry/metrics_page.h"
#include "proxy/thread/io_thread.h"

namespace vllm_router {
namespace {

constexpr int64_t kPatienceNanos = 30 * kNanosPerSecond;

}  // namespace

std::atomic<size_t> PageRenderer::max_page_bytes{kMaxPageBytes};

PageRenderer::~PageRenderer() { Stop(); }

void PageRenderer::Stop() {
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

PageRenderer::Stats PageRenderer::stats() const {
  const MutexLock lock(mutex_);
  return stats_;
}

void PageRenderer::StartThread() {
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
}

Task<PageRenderer::Page> PageRenderer::Get(IoThread& thread, CancelScope& scope, PageKey key, Render render) {
  const auto waiter = std::make_shared<Waiter>(thread, scope);
  {
    const MutexLock lock(mutex_);
    if (stopped_ || !queue_.Ask(key, clock_.NowNanos())) co_return nullptr;
    Job& job = pages_[key];
    job.key = std::move(key);
    job.render = std::move(render);
    job.waiters.push_back(waiter);
    StartThread();
  }
  changed_.notify_one();
  Page page = co_await Await(waiter);
  co_return page;
}

Task<PageRenderer::Page> PageRenderer::Elsewhere(IoThread& thread, CancelScope& scope, Render work) {
  const auto waiter = std::make_shared<Waiter>(thread, scope);
  {
    const MutexLock lock(mutex_);
    if (stopped_) co_return nullptr;
    Job& job = work_.emplace_back();
    job.render = std::move(work);
    job.waiters.push_back(waiter);
    job.is_page = false;
    StartThread();
  }
  changed_.notify_one();
  Page page = co_await Await(waiter);
  co_return page;
}

Task<PageRenderer::Page> PageRenderer::Await(std::shared_ptr<Waiter> waiter) {
  co_await waiter->scope->Pause(waiter->thread.loop, kPatienceNanos);
  waiter->scope = nullptr;
  co_return std::move(waiter->page);
}

void PageRenderer::Run() {
  MutexLock lock(mutex_);
  for (Job job; TakeJob(&lock, &job); job = Job()) {
    lock.Unlock();
    const int64_t began = clock_.NowNanos();
    Page page = std::make_shared<const AdminReply>(job.render());
    if (job.is_page) NoteRender(job.key.route, began, clock_.NowNanos());
    HandOut(job, page);
    if (job.is_page) {
      alive_.push_back({page, page->body.size()});
      page = nullptr;
      CutSlowReaders();
    }
    lock.Lock();
  }
}

void PageRenderer::NoteRender(Route route, int64_t began_ns, int64_t ended_ns) {
  const MutexLock lock(mutex_);
  queue_.Rendered(route, began_ns, ended_ns);
  Count& count = stats_.by_route[static_cast<size_t>(route)];
  ++count.renders;
  count.nanos += ended_ns - began_ns;
}

// Waits for one; false: this ends.
bool PageRenderer::TakeJob(MutexLock* lock, Job* job) {
  while (!stopped_) {
    if (!work_.empty()) {
      *job = std::move(work_.front());
      work_.pop_front();
      return true;
    }
    const int64_t now = clock_.NowNanos();
    if (const std::optional<PageKey> key = queue_.Next(now)) {
      *job = std::move(pages_.extract(*key).mapped());
      return true;
    }
    if (const std::optional<int64_t> next = queue_.next_ns()) {
      changed_.wait_for(lock->native(), std::chrono::nanoseconds(*next - now));
    } else {
      changed_.wait(lock->native());
    }
  }
  return false;
}

void PageRenderer::CutSlowReaders() {
  std::erase_if(alive_, [](const Alive& one) { return one.page.expired(); });
  size_t bytes = 0;
  for (const Alive& one : alive_) bytes += one.bytes;
  for (size_t i = 0; i + 1 < alive_.size() && bytes > max_page_bytes.load(std::memory_order_relaxed); ++i) {
    bytes -= alive_[i].bytes;
    if (Page page = alive_[i].page.lock(); page != nullptr) cut_(std::move(page));
    const MutexLock lock(mutex_);
    ++stats_.cut;
  }
}

void PageRenderer::HandOut(const Job& job, const Page& page) {
  std::map<IoThread*, std::vector<std::shared_ptr<Waiter>>> threads;
  for (const std::shared_ptr<Waiter>& waiter : job.waiters) threads[&waiter->thread].push_back(waiter);
  for (auto& [thread, waiters] : threads) {
    thread->loop.Post([waiters = std::move(waiters), page] { Spawn(Resume(waiters, page)); });
  }
}

// All at once would keep the loop from requests for as long as thousands of writes take.
Task<void> PageRenderer::Resume(std::vector<std::shared_ptr<Waiter>> waiters, Page page) {
  size_t resumed = 0;
  for (const std::shared_ptr<Waiter>& waiter : waiters) {
    if (waiter->scope == nullptr) continue;
    waiter->page = page;
    waiter->scope->EndPause();
    if (++resumed % kResumedPerTurn == 0) co_await waiter->thread.loop.Yield();
  }
}

void PageRenderer::WriteMetrics(MetricsPage* page) const {
  const Stats counted = stats();
  page->Counter(
      "page_renders_total", "Renders of the router's own pages; all requests that waited for one share it.");
  for (size_t route = 0; route < RoutesSoFar(); ++route)
    page->AddUnlessZero(
        counted.by_route[route].renders, {{"route", RouteOf(static_cast<Route>(route)).label}});
  page->Counter(
      "page_render_seconds_total",
      "Time of renders of own pages, on a thread of their own: at most a fifth of it for each route.");
  for (size_t route = 0; route < RoutesSoFar(); ++route) {
    const Count& count = counted.by_route[route];
    if (count.renders == 0) continue;
    page->Add(static_cast<double>(count.nanos) / 1e9, {{"route", RouteOf(static_cast<Route>(route)).label}});
  }
  page->Counter(
      "pages_cut_total",
      "Pages whose readers were cut, since slow clients kept more than 128 MiB of old pages in memory.");
  page->Add(counted.cut);
}

}  // namespace vllm_router
