#include "net/event_loop.h"

#include <time.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "net/ready_set.h"

namespace vllm_router {
namespace asio = boost::asio;
namespace {

// Coarse on purpose: a deadline of seconds does not need a precise clock, and this one costs 5 ns.
int64_t CoarseNowMs() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000 + now.tv_nsec / 1'000'000;
}

}  // namespace

struct EventLoop::Impl {
  // UNSAFE_IO: only the loop's thread uses sockets, while any thread may call Post(). So the reactor
  // needs no locks, but the queue does.
  asio::io_context context{BOOST_ASIO_CONCURRENCY_HINT_UNSAFE_IO};
  asio::executor_work_guard<asio::io_context::executor_type> work{context.get_executor()};
  asio::steady_timer ticker{context};
  ReadySet ready_set;
  asio::posix::stream_descriptor ready{context, ready_set.descriptor()};

  ~Impl() { ready.release(); }  // the set closes it
};

EventLoop::EventLoop()
    : impl_(std::make_unique<Impl>()), wheel_(std::make_unique<TimerWheel>(CoarseNowMs, [this] { Tick(); })) {
  AwaitReady();
}

EventLoop::~EventLoop() = default;

void EventLoop::Run() { impl_->context.run(); }

void EventLoop::Stop() { impl_->context.stop(); }

void EventLoop::Post(std::function<void()> function) { asio::post(impl_->context, std::move(function)); }

void EventLoop::Resume(std::coroutine_handle<> waiter) {
  asio::post(impl_->context, [waiter] { waiter.resume(); });
}

void EventLoop::AwaitReady() {
  impl_->ready.async_wait(
      asio::posix::stream_descriptor::wait_read, [this](const boost::system::error_code& error) {
        if (error) return;
        in_turn_ = true;
        impl_->ready_set.Turn();
        in_turn_ = false;
        EndTurn();
        AwaitReady();
      });
}

void EventLoop::ResumeAtTurnEnd(std::coroutine_handle<> waiter) {
  turn_end_.push_back(waiter);
  // A coroutine that was not resumed by a socket runs outside a turn, so no end of a turn would come.
  if (!in_turn_ && turn_end_.size() == 1) asio::post(impl_->context, [this] { EndTurn(); });
}

void EventLoop::EndTurn() {
  going_on_.swap(turn_end_);
  for (const std::coroutine_handle<> waiter : going_on_) waiter.resume();
  going_on_.clear();
}

void EventLoop::Tick() {
  impl_->ticker.expires_after(std::chrono::milliseconds(TimerWheel::kTickMs));
  impl_->ticker.async_wait([this](const boost::system::error_code& error) {
    if (!error && wheel_->Tick()) Tick();
  });
}

ReadySet& EventLoop::ready_set() { return impl_->ready_set; }

asio::io_context& EventLoop::context() { return impl_->context; }

struct Delay::Impl {
  asio::steady_timer timer;
};

Delay::Delay(EventLoop& loop) : impl_(new Impl{asio::steady_timer(loop.context())}) {}

Delay::~Delay() = default;

void Delay::Start(int64_t nanos, std::coroutine_handle<> waiter) {
  impl_->timer.expires_after(std::chrono::nanoseconds(nanos));
  impl_->timer.async_wait([this, waiter](const boost::system::error_code& error) {
    elapsed_ = !error;
    waiter.resume();
  });
}

void Delay::Cancel() { impl_->timer.cancel(); }

}  // namespace vllm_router
