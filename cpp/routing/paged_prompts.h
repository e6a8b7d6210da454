// PagedPrompts: which prompts have pages in a pool that workers share, and of what form, as far as it is known
// now. Whatever queries the pool sets it; KeyBuilder reads it.
//
//   Set({.form = {.tokens = 64}, .models = {"m", ""}}, /*awaited=*/true)
//   KeyBuilder: a prompt of token ids for "m", without salt and media  -->  RoutingKey::pages
//
// Engines name a page by its ids alone, so adapters, salts and media have other pages under the same keys.
// Thread-safe; without a pool a request costs two relaxed loads.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "base/snapshot.h"
#include "hashing/page_keys.h"

namespace vllm_router {

class PagedPrompts {
 public:
  struct Pages {
    PageForm form;
    std::set<std::string, std::less<>> models;  // names of base models in requests
  };

  // `awaited`: decisions depend on the pool, so text is worth being turned into ids.
  void Set(Pages pages, bool awaited) {
    const bool any = pages.form.tokens != 0 && !pages.models.empty();
    pages_.Publish(std::make_shared<const Pages>(std::move(pages)));
    any_.store(any, std::memory_order_relaxed);
    awaited_.store(any && awaited, std::memory_order_relaxed);
  }

  // Null: none has pages.
  std::shared_ptr<const Pages> Get() const {
    return any_.load(std::memory_order_relaxed) ? pages_.Load() : nullptr;
  }
  bool awaited() const { return awaited_.load(std::memory_order_relaxed); }

 private:
  Snapshot<Pages> pages_{std::make_shared<const Pages>()};
  std::atomic<bool> any_{false};
  std::atomic<bool> awaited_{false};
};

}  // namespace vllm_router
