// LiveSettings: the settings of a server, which may change while it runs. A change is all or nothing.
//
//   Apply(change)     a file of settings was read again: checks all of it, then workers, then the settings
//   Publish(settings) requests that begin from now on go by them; limits and features have followed before
//
// settings() from any thread, at any time; Apply() and Publish() from any thread, once OnPublished() was called.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "base/mutex.h"
#include "base/snapshot.h"
#include "base/status.h"
#include "proxy/api/server_options.h"
#include "worker/declared_fleet.h"
#include "worker/worker_declaration.h"
#include "worker/worker_registry.h"

namespace vllm_router {

class Router;
struct ServerLimits;

class LiveSettings {
 public:
  using Published = std::function<void(const std::shared_ptr<const Settings>&)>;

  // What may change at once.
  struct Change {
    Settings settings;
    GuardOptions guard;
    std::optional<std::vector<WorkerDeclaration>> workers;  // all of the settings; null: as they are
  };

  // All outlive it. `options`: as at the start, completed (completed_options.h).
  LiveSettings(const ServerOptions& options, Router& router, ServerLimits& limits);

  // Before the threads run: who else follows the settings.
  void OnPublished(Published published) { published_ = std::move(published); }

  const Snapshot<Settings>& snapshot() const { return settings_; }
  std::shared_ptr<const Settings> Load() const { return settings_.Load(); }

  // A change of what Load() returned is lost if another is published meanwhile.
  void Publish(Settings settings);
  // All of it or, with an error, nothing. `dry_run`: only whether there would be an error.
  StatusOr<Difference> Apply(Change change, bool dry_run);

 private:
  void ExpectModels(const Settings& settings);

  const ServerOptions& options_;
  Router& router_;
  ServerLimits& limits_;
  Snapshot<Settings> settings_;
  Published published_;
  Mutex apply_mutex_;  // held during Apply()
};

}  // namespace vllm_router
