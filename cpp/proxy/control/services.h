// Services: the services of a server (service.h), in the order in which they start, drain and stop and write their metrics, and
// what they give to others: an endpoint, another service or the server finds each by its type.
//
//   services.Add<LoadPoller>();                       made with the control thread
//   services.Find<LoadPoller>()                       null: the server has none
//   services.Offer<OtherRouters>(peers)               a face of one, for those who need not know it
//   services.Keep(std::make_unique<KvPushReceiver>()) no service, but endpoints find it likewise
//
// They are added before the threads run. Start() and what follows on the control thread; Find() and WriteMetrics() on any.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "base/type_map.h"
#include "proxy/control/service.h"

namespace vllm_router {

struct IoThread;

class Services {
 public:
  explicit Services(IoThread& control) : control_(control) {}

  template <typename T, typename... Args>
  T* Add(Args&&... args) {
    return AddMade(std::make_unique<T>(control_, std::forward<Args>(args)...));
  }
  template <typename T>
  T* AddMade(std::unique_ptr<T> service) {
    T* const added = service.get();
    all_.push_back(std::move(service));
    found_.Refer<T>(added);
    return added;
  }
  template <typename T>
  void Offer(T* face) {
    found_.Refer<T>(face);
  }
  template <typename T>
  T* Keep(std::unique_ptr<T> object) {
    return found_.Own(std::move(object));
  }
  template <typename T>
  T* Find() const {
    return found_.Find<T>();
  }

  // What else writes families, behind the services.
  void AddMetrics(std::function<void(MetricsPage*)> write) { writers_.push_back(std::move(write)); }

  void Start() const;
  void Drain() const;
  bool idle() const;  // all are
  void Stop();
  bool ended() const;           // of all
  void FollowSettings() const;  // nothing once they were stopped
  void WriteMetrics(MetricsPage* page) const;
  void AddConditions(const Service::AddCondition& add) const;

 private:
  IoThread& control_;
  TypeMap found_;  // what it keeps outlives the services, and uses none
  std::vector<std::unique_ptr<Service>> all_;
  std::vector<std::function<void(MetricsPage*)>> writers_;
  bool stopped_ = false;
};

}  // namespace vllm_router
