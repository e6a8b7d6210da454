#include "proxy/thread/slow_uploads.h"

#include "net/event_loop.h"

namespace vllm_router {

class SlowUploads::Upload {
 public:
  Upload(EventLoop& loop, Cut cut, void* context) : loop(loop), cut(cut), context(context) {}
  EventLoop& loop;
  const Cut cut;
  void* context;  // null: removed; the loop's thread only
  std::list<std::shared_ptr<Upload>>::iterator place;
  bool listed = false;  // guarded by the mutex
};

std::shared_ptr<SlowUploads::Upload> SlowUploads::Add(EventLoop& loop, Cut cut, void* context) {
  auto upload = std::make_shared<Upload>(loop, cut, context);
  MutexLock lock(mutex_);
  upload->place = slow_.insert(slow_.end(), upload);
  upload->listed = true;
  if (waiting_() > cuts_) CutOne();
  return upload;
}

void SlowUploads::Remove(const std::shared_ptr<Upload>& upload) {
  upload->context = nullptr;
  MutexLock lock(mutex_);
  if (!upload->listed) return;
  upload->listed = false;
  slow_.erase(upload->place);
}

void SlowUploads::MakeRoom(uint32_t newcomers) {
  MutexLock lock(mutex_);
  if (!slow_.empty() && waiting_() + newcomers > cuts_) CutOne();
}

void SlowUploads::CutEnded() {
  MutexLock lock(mutex_);
  --cuts_;
}

void SlowUploads::CutOne() {
  const std::shared_ptr<Upload> upload = slow_.front();
  upload->listed = false;
  slow_.pop_front();
  ++cuts_;
  upload->loop.Post([this, upload] {
    if (upload->context != nullptr) {
      upload->cut(upload->context);
      return;
    }
    CutEnded();  // it has moved meanwhile
    MakeRoom(0);
  });
}

}  // namespace vllm_router
