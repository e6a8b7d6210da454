// PageRenderer: a thread of its own that renders the router's own pages (metrics, workers, reports), so that the threads
// that serve requests do not. With 4,096 workers a scrape takes a hundred times as long as a request.
//
//   I/O threads      GET ──▶ Get() waits ·········▶ writes the page, which all who waited share
//                               │                  ▲ posted, kResumedPerTurn of them in a turn of the loop
//   this thread                 └──▶ render once ──┘
//
// What is rendered when RenderQueue says. A page is immutable and counted by references: ten thousand clients that do not
// read it cost its bytes once. Clients that read pages slowly keep old ones alive; once all that are alive have
// kMaxPageBytes, those who still read the oldest are cut.
//
// Elsewhere() runs something expensive for one request alone, in order and without rests.
//
// Get() and Elsewhere() on any I/O thread; what they render runs on this thread and must be thread-safe. The thread starts
// with the first of them. Stop() once no I/O thread runs any more.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "net/task.h"
#include "proxy/admin/render_queue.h"
#include "proxy/api/admin_reply.h"

namespace vllm_router {

class CancelScope;
class MetricsPage;
struct IoThread;

class PageRenderer {
 public:
  using Page = std::shared_ptr<const AdminReply>;
  using Render = std::function<AdminReply()>;

  static constexpr size_t kMaxPageBytes = size_t{128}
                                          << 20;  // of pages that clients have not read to their end
  static std::atomic<size_t> max_page_bytes;      // the same; tests set another one
  static constexpr size_t kResumedPerTurn = 2;

  // `cut`: called on this thread with a page that is to be read no further.
  explicit PageRenderer(std::function<void(Page)> cut) : cut_(std::move(cut)) {}
  ~PageRenderer();
  PageRenderer(const PageRenderer&) = delete;
  PageRenderer& operator=(const PageRenderer&) = delete;

  // The page as it is now or will be in a moment. `render`: of the requests that share a render, the last one's is used.
  // Null: the scope was cancelled, too many pages of the route wait, or this one took too long.
  Task<Page> Get(IoThread& thread, CancelScope& scope, PageKey key, Render render);
  Task<Page> Elsewhere(IoThread& thread, CancelScope& scope, Render work);

  struct Count {
    uint64_t renders = 0;
    int64_t nanos = 0;
  };
  struct Stats {
    std::array<Count, kRouteCount> by_route{};
    uint64_t cut = 0;  // pages whose readers were cut
  };
  Stats stats() const;
  void WriteMetrics(MetricsPage* page) const;

  void Stop();

 private:
  struct Waiter {
    Waiter(IoThread& thread, CancelScope& scope) : thread(thread), scope(&scope) {}
    IoThread& thread;
    CancelScope* scope;  // null: it waits no more. Of its thread, as the page
    Page page;
  };
  struct Job {
    PageKey key;
    Render render;
    std::vector<std::shared_ptr<Waiter>> waiters;
    bool is_page = true;
  };
  struct Alive {
    std::weak_ptr<const AdminReply> page;
    size_t bytes;
  };

  Task<Page> Await(std::shared_ptr<Waiter> waiter);
  void StartThread() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Run();
  bool TakeJob(MutexLock* lock, Job* job) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void NoteRender(Route route, int64_t began_ns, int64_t ended_ns);
  void CutSlowReaders();
  static void HandOut(const Job& job, const Page& page);
  static Task<void> Resume(std::vector<std::shared_ptr<Waiter>> waiters, Page page);

  SteadyClock clock_;
  const std::function<void(Page)> cut_;
  std::deque<Alive> alive_;  // of this thread: pages that clients may still read, the oldest first

  mutable Mutex mutex_;  // leaf
  std::condition_variable changed_;
  RenderQueue queue_ ABSL_GUARDED_BY(mutex_);
  std::map<PageKey, Job> pages_ ABSL_GUARDED_BY(mutex_);  // those that wait
  std::deque<Job> work_ ABSL_GUARDED_BY(mutex_);
  Stats stats_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace vllm_router
