// PagedArray: an array that grows at its end without ever moving, so that no operation takes long.
//
//   pages_   [ * ][ * ][ * ]        page of kPageItems items each; item i is pages_[i / kPageItems][i % kPageItems]
//
// A vector of 10 M items copies them all to hold one more; this one adds a page. References stay valid
// until the item is popped. Access costs one more load. Empty pages behind the last one are given back,
// but for one. One thread.
#pragma once

#include <bit>
#include <cstddef>
#include <memory>
#include <type_traits>
#include <vector>

namespace vllm_router {

template <typename T, size_t kPageItems>
class PagedArray {
  static_assert(std::has_single_bit(kPageItems));
  static_assert(std::is_trivially_destructible_v<T>);

 public:
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }

  // REQUIRES: i < size().
  T& operator[](size_t i) { return pages_[i / kPageItems][i % kPageItems]; }
  const T& operator[](size_t i) const { return pages_[i / kPageItems][i % kPageItems]; }

  // REQUIRES: !empty().
  T& back() { return (*this)[size_ - 1]; }

  void push_back(const T& item) {
    if (size_ == pages_.size() * kPageItems) {
      pages_.push_back(std::make_unique_for_overwrite<T[]>(kPageItems));
    }
    pages_[size_ / kPageItems][size_ % kPageItems] = item;
    ++size_;
  }

  // REQUIRES: !empty().
  void pop_back() {
    --size_;
    if (pages_.size() * kPageItems >= size_ + 2 * kPageItems) pages_.pop_back();
  }

  size_t bytes() const {
    return pages_.size() * kPageItems * sizeof(T) + pages_.capacity() * sizeof(pages_[0]);
  }

 private:
  std::vector<std::unique_ptr<T[]>> pages_;
  size_t size_ = 0;
};

}  // namespace vllm_router
