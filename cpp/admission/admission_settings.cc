#include "admission/admission_settings.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include "admission/tenant_name.h"
#include "base/text.h"

namespace vllm_router {
namespace {

constexpr std::array<std::string_view, 3> kGates = {"open", "gated", "idle_only"};

std::optional<ClassGate> GateByName(std::string_view name) {
  for (size_t i = 0; i < kGates.size(); ++i) {
    if (name == kGates[i]) return static_cast<ClassGate>(i);
  }
  return std::nullopt;
}

std::optional<double> ParseReal(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

class Reading {
 public:
  explicit Reading(size_t line) : line_(line) {}

  Status Wrong(std::string_view member, std::string_view value, std::string_view limit) const {
    return absl::InvalidArgumentError(
        Concat("line ", line_, ": ", member, " is ", Quoted(value), "; it must be ", limit));
  }
  Status Say(std::string_view problem) const {
    return absl::InvalidArgumentError(Concat("line ", line_, ": ", problem));
  }

  // `name`=`value` of a class.
  Status Set(std::string_view name, std::string_view value, ClassSettings* settings) const {
    const std::optional<uint64_t> count = ParseDecimal(value);
    const std::optional<double> real = ParseReal(value);
    if (name == "queue_size") {
      if (!count || *count > kMaxClassQueue) return Wrong(name, value, Whole(0, kMaxClassQueue));
      settings->queue_size = static_cast<uint32_t>(*count);
    } else if (name == "queue_timeout_ms") {
      if (!count || *count == 0 || *count > kMaxClassWaitMs)
        return Wrong(name, value, Whole(1, kMaxClassWaitMs));
      settings->queue_timeout_ms = static_cast<int64_t>(*count);
    } else if (name == "age_after_ms") {
      if (!count || *count > kMaxClassWaitMs) return Wrong(name, value, Whole(0, kMaxClassWaitMs));
      settings->age_after_ms = static_cast<int64_t>(*count);
    } else if (name == "gate") {
      const std::optional<ClassGate> gate = GateByName(value);
      if (!gate) return Wrong(name, value, "open, gated or idle_only");
      settings->room.gate = *gate;
    } else if (name == "kv_ceiling") {
      if (!real || *real <= 0 || *real > 1) return Wrong(name, value, "a number above 0, up to 1");
      settings->room.kv_ceiling = *real;
    } else if (name == "weight") {
      if (!real || *real <= 0 || *real > kMaxClassWeight)
        return Wrong(name, value, Concat("a number above 0, up to ", kMaxClassWeight));
      settings->weight = *real;
    } else if (name == "evict") {
      if (value != "true" && value != "false") return Wrong(name, value, "true or false");
      settings->evict = value == "true";
    } else {
      return Say(Concat(Quoted(name), " is not a known member of a class"));
    }
    return absl::OkStatus();
  }

  // Likewise of a tenant.
  Status Set(std::string_view name, std::string_view value, TenantSettings* settings) const {
    TenantLimits& limits = settings->limits;
    if (name == "concurrency") return SetCount(name, value, 0, kMaxTenantConcurrency, &limits.concurrency);
    if (name == "requests_per_minute")
      return SetCount(name, value, 0, kMaxTenantRequests, &limits.requests_per_minute);
    if (name == "tokens_per_minute")
      return SetCount(name, value, 0, kMaxTenantTokens, &limits.tokens_per_minute);
    if (name == "burst_ms") {
      uint64_t burst = 0;
      ROUTER_RETURN_IF_ERROR(SetCount(name, value, 1, kMaxTenantBurstMs, &burst));
      limits.burst_ms = static_cast<int64_t>(burst);
      return absl::OkStatus();
    }
    if (name != "weight") return Say(Concat(Quoted(name), " is not a known member of a tenant"));
    const std::optional<double> real = ParseReal(value);
    if (!real || *real <= 0 || *real > kMaxClassWeight)
      return Wrong(name, value, Concat("a number above 0, up to ", kMaxClassWeight));
    settings->weight = *real;
    return absl::OkStatus();
  }

 private:
  Status SetCount(
      std::string_view name, std::string_view value, uint64_t least, uint64_t most, uint64_t* count) const {
    const std::optional<uint64_t> read = ParseDecimal(value);
    if (!read || *read < least || *read > most) return Wrong(name, value, Whole(least, most));
    *count = *read;
    return absl::OkStatus();
  }
  static std::string Whole(uint64_t least, uint64_t most) {
    return Concat("a whole number between ", least, " and ", most);
  }

  const size_t line_;
};

// Calls `take` with each NAME=VALUE of the line.
template <typename Take>
Status EachMember(std::string_view rest, const Reading& reading, Take take) {
  for (std::string_view word = TakeWord(&rest); !word.empty(); word = TakeWord(&rest)) {
    const size_t sign = word.find('=');
    if (sign == std::string_view::npos)
      return reading.Say(Concat(Quoted(word), " has no value; write NAME=VALUE"));
    ROUTER_RETURN_IF_ERROR(take(word.substr(0, sign), word.substr(sign + 1)));
  }
  return absl::OkStatus();
}

Status ReadClass(
    std::string_view rest, const Reading& reading, std::array<bool, kPriorityClasses>* said,
    AdmissionSettings* settings) {
  const std::string_view name = TakeWord(&rest);
  const std::optional<PriorityClass> named = PriorityClassByName(name);
  if (!named) return reading.Wrong("class", name, kPriorityClassNames);
  if (std::exchange((*said)[static_cast<size_t>(*named)], true))
    return reading.Say(Concat("the class ", PriorityClassName(*named), " appears twice; keep one of them"));
  return EachMember(rest, reading, [&](std::string_view member, std::string_view value) {
    return reading.Set(member, value, &settings->of(*named));
  });
}

Status ReadAlias(std::string_view rest, const Reading& reading, AdmissionSettings* settings) {
  const std::string_view name = TakeWord(&rest);
  const std::optional<PriorityClass> named = PriorityClassByName(name);
  if (!named) return reading.Wrong("class", name, kPriorityClassNames);
  if (rest.size() < 2) return reading.Say("an alias has no name");
  rest.remove_prefix(1);
  if (settings->aliases.size() >= kMaxClassAliases)
    return reading.Say(Concat("there are more than ", kMaxClassAliases, " aliases, which is the limit"));
  if (!settings->aliases.emplace(rest, *named).second)
    return reading.Say(Concat("the alias ", Quoted(rest), " appears twice; keep one of them"));
  return absl::OkStatus();
}

// The name is behind the members.
Status ReadTenant(std::string_view rest, const Reading& reading, AdmissionSettings* settings) {
  TenantSettings tenant;
  std::string_view word = TakeWord(&rest);
  for (; word.find('=') != std::string_view::npos; word = TakeWord(&rest)) {
    const size_t sign = word.find('=');
    ROUTER_RETURN_IF_ERROR(reading.Set(word.substr(0, sign), word.substr(sign + 1), &tenant));
  }
  if (!IsTenantName(word)) {
    return reading.Wrong(
        "the name of a tenant", word, Concat("1 to ", kMaxTenantBytes, " letters, digits or . _ - @ /"));
  }
  if (const std::string_view more = TakeWord(&rest); !more.empty())
    return reading.Say(Concat(Quoted(more), " is behind the name of a tenant, which must be the last word"));
  if (settings->tenants.size() >= kMaxConfiguredTenants)
    return reading.Say(Concat("there are more than ", kMaxConfiguredTenants, " tenants, which is the limit"));
  if (!settings->tenants.emplace(word, tenant).second)
    return reading.Say(Concat("the tenant ", Quoted(word), " appears twice; keep one of them"));
  return absl::OkStatus();
}

Status ReadEngine(std::string_view rest, const Reading& reading, AdmissionSettings* settings) {
  constexpr std::array<std::string_view, 3> kClients = {"keep", "clamp", "replace"};
  EnginePriority& engine = settings->engine;
  if (std::exchange(engine.is_told, true)) return reading.Say("engine appears twice; keep one of them");
  const std::string_view kind = TakeWord(&rest);
  engine.larger_first = kind == "sglang";
  if (!engine.larger_first && kind != "vllm" && kind != "sglang-low-first")
    return reading.Wrong("engine", kind, "vllm, sglang or sglang-low-first");
  return EachMember(rest, reading, [&](std::string_view name, std::string_view value) -> Status {
    if (name == "client") {
      const auto found = std::ranges::find(kClients, value);
      if (found == kClients.end()) return reading.Wrong(name, value, "keep, clamp or replace");
      engine.client = static_cast<EnginePriority::Client>(found - kClients.begin());
      return absl::OkStatus();
    }
    const std::optional<PriorityClass> of_class = PriorityClassByName(name);
    if (!of_class)
      return reading.Say(Concat(Quoted(Concat(name, "=", value)), " is not a known member of engine"));
    const std::optional<double> number = ParseReal(value);
    if (!number || std::abs(*number) > kMaxEnginePriority || *number != std::trunc(*number)) {
      return reading.Wrong(
          name, value, Concat("a whole number between -", kMaxEnginePriority, " and ", kMaxEnginePriority));
    }
    engine.values[static_cast<size_t>(*of_class)] = static_cast<int32_t>(*number);
    return absl::OkStatus();
  });
}

// What single lines cannot show.
Status CheckTogether(const AdmissionSettings& settings) {
  for (size_t i = 0; i < settings.classes.size(); ++i) {
    const auto name = PriorityClassName(static_cast<PriorityClass>(i));
    const ClassSettings& one = settings.classes[i];
    if ((one.weight > 0) != settings.weighted()) {
      return absl::InvalidArgumentError(Concat(
          "some classes have a weight and ", settings.weighted() ? name : PriorityClassName(PriorityClass{}),
          " has none; give one to each class, or to none for the strict order"));
    }
    if (i == 0 && one.evict) {
      return absl::InvalidArgumentError(
          Concat("evict of ", name, " is true, and no class is above it; remove it"));
    }
    if (i == 0) continue;
    const ClassSettings& above = settings.classes[i - 1];
    const auto above_name = PriorityClassName(static_cast<PriorityClass>(i - 1));
    if (one.room.gate < above.room.gate) {
      return absl::InvalidArgumentError(Concat(
          "the gate of ", name, " is ", ClassGateName(one.room.gate), " and that of ", above_name, " is ",
          ClassGateName(above.room.gate),
          "; a lower class has the same or a narrower one: open, gated, idle_only"));
    }
    if (above.evict && !one.evict) {
      return absl::InvalidArgumentError(Concat(
          "evict of ", above_name, " is true and that of ", name,
          ", which is below it, is not; set it for both, or for none"));
    }
    if (above.room.gate != ClassGate::kOpen && one.room.kv_ceiling > above.room.kv_ceiling) {
      return absl::InvalidArgumentError(Concat(
          "the kv_ceiling of ", name, " is ", one.room.kv_ceiling, " and that of ", above_name, " is ",
          above.room.kv_ceiling, "; a lower class has the same or a lower one"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view TakeWord(std::string_view* text) {
  while (!text->empty() && text->front() == ' ') text->remove_prefix(1);
  const std::string_view word = text->substr(0, text->find(' '));
  text->remove_prefix(word.size());
  return word;
}

std::string_view ClassGateName(ClassGate gate) { return kGates[static_cast<size_t>(gate)]; }

AdmissionSettings::AdmissionSettings() {
  of(PriorityClass::kInteractive) = {
      .queue_size = 256, .queue_timeout_ms = 30'000, .room = {.gate = ClassGate::kOpen}};
  of(PriorityClass::kDefault) = {.queue_size = 512, .queue_timeout_ms = 60'000, .age_after_ms = 30'000};
  of(PriorityClass::kBatch) = {
      .queue_size = 8'192,
      .queue_timeout_ms = 600'000,
      .room = {.gate = ClassGate::kIdleOnly, .kv_ceiling = 0.5}};
}

StatusOr<AdmissionSettings> AdmissionSettings::Parse(std::string_view lines) {
  AdmissionSettings settings;
  std::array<bool, kPriorityClasses> said{};
  for (size_t number = 1; !lines.empty(); ++number) {
    const size_t end = lines.find('\n');
    std::string_view rest = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    const Reading reading(number);
    const std::string_view what = TakeWord(&rest);
    if (what == "class") {
      ROUTER_RETURN_IF_ERROR(ReadClass(rest, reading, &said, &settings));
    } else if (what == "alias") {
      ROUTER_RETURN_IF_ERROR(ReadAlias(rest, reading, &settings));
    } else if (what == "tenant") {
      ROUTER_RETURN_IF_ERROR(ReadTenant(rest, reading, &settings));
    } else if (what == "engine") {
      ROUTER_RETURN_IF_ERROR(ReadEngine(rest, reading, &settings));
    } else if (!what.empty()) {
      return reading.Say(
          Concat("a line begins with ", Quoted(what), "; it must begin with class, alias, tenant or engine"));
    }
  }
  ROUTER_RETURN_IF_ERROR(CheckTogether(settings));
  return settings;
}

std::optional<PriorityClass> AdmissionSettings::ClassOfAlias(std::string_view alias) const {
  const auto found = aliases.find(alias);
  return found != aliases.end() ? std::optional(found->second) : std::nullopt;
}

const TenantSettings& AdmissionSettings::OfTenant(std::string_view tenant) const {
  static constexpr TenantSettings kDefaults;
  auto found = tenants.find(tenant);
  if (found == tenants.end()) found = tenants.find(kUnnamedTenants);
  return found != tenants.end() ? found->second : kDefaults;
}

}  // namespace vllm_router
