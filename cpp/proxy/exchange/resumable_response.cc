#include "proxy/exchange/resumable_response.h"

namespace vllm_router {
namespace {

struct Slot {
  ResumableResponse* response;
};

}  // namespace

bool ResumableResponse::LeaveWorker(CancelReason reason) {
  if (!request_.relaying || !MayResume()) return false;
  if (left_worker_ == CancelReason::kNone) left_worker_ = reason;
  request_.attempts->response().socket().Close();
  Left();
  return true;
}

void MakeResumable(Request& request, ResumableResponse& response) { request.state.Emplace<Slot>(&response); }

void MakeUnresumable(Request& request) {
  if (auto* const slot = request.state.Find<Slot>()) slot->response = nullptr;
}

ResumableResponse* ResumableOf(const Request& request) {
  const auto* const slot = request.state.Find<Slot>();
  return slot != nullptr ? slot->response : nullptr;
}

void LeaveWorkerOrCancel(Request& request, CancelReason reason) {
  ResumableResponse* const resumable = ResumableOf(request);
  if (resumable == nullptr || !resumable->LeaveWorker(reason)) request.Cancel(reason);
}

}  // namespace vllm_router
