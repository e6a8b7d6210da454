// RequestState: what single steps keep of one request, by type, so that the Request need not know it.
//
//   request.state.Emplace<CachedRequest>(thread, settings, head);      // in one step
//   if (auto* cached = request.state.Find<CachedRequest>()) …          // in that step's hooks
//
// Find costs a comparison for each thing that is kept: none for most requests. Emplace allocates. What was kept last
// is destroyed first. One thread.
#pragma once

#include <memory>
#include <utility>

namespace vllm_router {

class RequestState {
 public:
  RequestState() = default;
  RequestState(const RequestState&) = delete;
  RequestState& operator=(const RequestState&) = delete;
  ~RequestState() {
    while (first_ != nullptr) first_ = std::move(first_->next);
  }

  // REQUIRES: none of this type is kept.
  template <typename T, typename... Arguments>
  T& Emplace(Arguments&&... arguments) {
    auto kept = std::make_unique<Kept<T>>(std::forward<Arguments>(arguments)...);
    T& value = kept->value;
    kept->next = std::move(first_);
    first_ = std::move(kept);
    return value;
  }

  // Null: none is kept.
  template <typename T>
  T* Find() const {
    for (Node* each = first_.get(); each != nullptr; each = each->next.get()) {
      if (each->type == &kType<T>) return &static_cast<Kept<T>*>(each)->value;
    }
    return nullptr;
  }

 private:
  template <typename T>
  static constexpr char kType = 0;

  struct Node {
    explicit Node(const void* type) : type(type) {}
    virtual ~Node() = default;
    Node(const Node&) = delete;
    Node& operator=(const Node&) = delete;
    const void* const type;
    std::unique_ptr<Node> next;
  };
  template <typename T>
  struct Kept final : Node {
    template <typename... Arguments>
    explicit Kept(Arguments&&... arguments) : Node(&kType<T>), value{std::forward<Arguments>(arguments)...} {}
    T value;
  };

  std::unique_ptr<Node> first_;
};

}  // namespace vllm_router
