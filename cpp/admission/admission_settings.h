// AdmissionSettings: what an operator says of the priority classes: how many requests of each may wait and how long, which
// workers have room for them, and in which order they are dispatched.
//
//   class interactive queue_size=256 queue_timeout_ms=30000 gate=open
//   class default queue_size=512 queue_timeout_ms=60000 gate=gated kv_ceiling=0.95 age_after_ms=30000
//   class batch queue_size=8192 queue_timeout_ms=600000 gate=idle_only kv_ceiling=0.5 evict=true
//   alias batch nightly
//   tenant weight=4 concurrency=64 requests_per_minute=1200 tokens_per_minute=600000 burst_ms=10000 search
//   engine vllm client=keep interactive=-10 default=0 batch=10
//
// These lines are what the program that reads the operator's file (python/vllm_router/settings/admission.py) makes of it.
// What a line leaves out has its default. With a weight in each class the order is weighted, else strict. Immutable; any
// thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "admission/priority_class.h"
#include "admission/room.h"
#include "admission/tenant_limits.h"
#include "base/status.h"

namespace vllm_router {

inline constexpr uint32_t kMaxClassQueue = 65'536;
inline constexpr int64_t kMaxClassWaitMs = 86'400'000;
inline constexpr size_t kMaxClassAliases = 256;
inline constexpr size_t kMaxConfiguredTenants = 4'096;
inline constexpr int32_t kMaxEnginePriority = 1'000'000;
inline constexpr double kMaxClassWeight = 1'000;

// The next word of a line, without the blanks in front of it; `text` is what follows. Empty at its end.
std::string_view TakeWord(std::string_view* text);

// Stands for all tenants without a line of their own.
inline constexpr std::string_view kUnnamedTenants = "default";

std::string_view ClassGateName(ClassGate gate);

struct ClassSettings {
  uint32_t queue_size = 512;          // waiters; 0: none wait
  int64_t queue_timeout_ms = 60'000;  // > 0
  ClassRoom room;
  int64_t age_after_ms = 0;  // the oldest waiter counts one class higher from then on; 0: never
  double weight = 0;         // of the weighted order
  bool evict = false;        // one with a long prompt makes room for the highest class (evictables.h)

  bool operator==(const ClassSettings&) const = default;
};

// What an engine that orders its own queue by the body's member `priority` is told of the class.
struct EnginePriority {
  enum class Client : uint8_t {
    kKeep,
    kClamp,
    kReplace
  };  // what becomes of a member that the client has sent

  bool is_told = false;
  bool larger_first = false;  // as SGLang by default; vLLM serves the lower number first
  Client client = Client::kKeep;
  std::array<int32_t, kPriorityClasses> values = {-10, 0, 10};  // of the classes, the lower first

  // As that engine counts.
  int32_t ValueOf(PriorityClass priority_class) const {
    const int32_t value = values[static_cast<size_t>(priority_class)];
    return larger_first ? -value : value;
  }
  bool operator==(const EnginePriority&) const = default;
};

struct TenantSettings {
  double weight = 1;  // in the order of each class
  TenantLimits limits;

  bool operator==(const TenantSettings&) const = default;
};

struct AdmissionSettings {
  AdmissionSettings();  // the defaults of the three classes

  // InvalidArgument names the line, the member, its value and the limit.
  static StatusOr<AdmissionSettings> Parse(std::string_view lines);

  const ClassSettings& of(PriorityClass priority_class) const {
    return classes[static_cast<size_t>(priority_class)];
  }
  ClassSettings& of(PriorityClass priority_class) { return classes[static_cast<size_t>(priority_class)]; }
  bool weighted() const { return classes.front().weight > 0; }
  bool evicts() const { return classes.back().evict; }  // some class; the lowest one then
  std::optional<PriorityClass> ClassOfAlias(std::string_view alias) const;
  // Those of the tenant, of kUnnamedTenants, or the defaults. Live as long as these settings.
  const TenantSettings& OfTenant(std::string_view tenant) const;
  double WeightOf(std::string_view tenant) const { return OfTenant(tenant).weight; }
  // Whether the tenant has a line of its own.
  bool Names(std::string_view tenant) const { return tenant != kUnnamedTenants && tenants.contains(tenant); }

  std::array<ClassSettings, kPriorityClasses> classes;  // the highest first
  std::map<std::string, PriorityClass, std::less<>> aliases;
  EnginePriority engine;
  std::map<std::string, TenantSettings, std::less<>> tenants;

  bool operator==(const AdmissionSettings&) const = default;
};

}  // namespace vllm_router
