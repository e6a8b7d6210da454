// TypeMap: at most one object of each type, found by its type. What a part of the program keeps for another that need not
// know it, such as a feature's objects of a thread or of a server.
//
//   map.Own(std::make_unique<Pool>(…));      map.Refer<Face>(&object);
//   if (Pool* pool = map.Find<Pool>()) …     null: there is none
//
// Find() compares one pointer for each object. Objects that it owns end in the reverse order of Own(). Not thread-safe while
// objects are added; afterwards any thread may call Find().
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "base/check.h"

namespace vllm_router {

class TypeMap {
 public:
  TypeMap() = default;
  ~TypeMap() {
    while (!entries_.empty()) entries_.pop_back();
  }
  TypeMap(const TypeMap&) = delete;
  TypeMap& operator=(const TypeMap&) = delete;

  // Null if there is none.
  template <typename T>
  T* Find() const {
    for (const Entry& entry : entries_) {
      if (entry.type == &kType<T>) return static_cast<T*>(entry.object.get());
    }
    return nullptr;
  }

  // REQUIRES: there is none of that type.
  template <typename T>
  T* Own(std::unique_ptr<T> object) {
    T* const added = object.get();
    Add(&kType<T>, std::shared_ptr<T>(std::move(object)));
    return added;
  }
  // The same; the object outlives the map.
  template <typename T>
  void Refer(T* object) {
    Add(&kType<T>, std::shared_ptr<void>(std::shared_ptr<void>(), object));
  }

 private:
  struct Entry {
    const void* type;
    std::shared_ptr<void> object;  // refers to it if it is not owned
  };
  template <typename T>
  static inline char kType = 0;  // its address names the type; not constant, as linkers may merge constants

  void Add(const void* type, std::shared_ptr<void> object) {
    for (const Entry& entry : entries_) ROUTER_CHECK(entry.type != type, "a type has one object");
    entries_.push_back({type, std::move(object)});
  }

  std::vector<Entry> entries_;
};

}  // namespace vllm_router
