// base/ for its tests.
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pybind11/stl.h>

#include "base/check.h"
#include "base/clock.h"
#include "base/header_field.h"
#include "base/limits.h"
#include "base/log.h"
#include "base/log_output.h"
#include "base/option_spec.h"
#include "base/random.h"
#include "base/snapshot.h"
#include "base/status.h"
#include "base/text.h"
#include "base/type_map.h"
#include "base/version.h"
#include "base/whole_file.h"
#include "bindings/bindings.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

using StringSnapshot = Snapshot<std::string>;

// Two types of objects that note their ends.
template <char kLetter>
struct Noting {
  std::vector<std::string>* ends;
  std::string name;
  ~Noting() { ends->push_back(name); }
};

// What a map with these objects, "number" or "text", finds, and the order in which they end with it.
std::pair<std::vector<std::string>, std::vector<std::string>> UseTypeMap(
    const std::vector<std::string>& owned, const std::vector<std::string>& referred) {
  std::vector<std::string> ends;
  std::vector<std::string> ends_later;
  std::vector<std::string> found;
  Noting<'n'> number{&ends_later, "number"};
  Noting<'t'> text{&ends_later, "text"};
  {
    TypeMap map;
    for (const std::string& name : owned) {
      if (name == "number") map.Own(std::make_unique<Noting<'n'>>(Noting<'n'>{&ends, name}));
      if (name == "text") map.Own(std::make_unique<Noting<'t'>>(Noting<'t'>{&ends, name}));
    }
    for (const std::string& name : referred) {
      if (name == "number") map.Refer(&number);
      if (name == "text") map.Refer(&text);
    }
    if (const auto* const one = map.Find<Noting<'n'>>()) found.push_back(one->name);
    if (const auto* const one = map.Find<Noting<'t'>>()) found.push_back(one->name);
    ends.clear();  // of the copies
  }
  return {found, ends};
}

struct DoorOptions {
  enum class Hinge : uint8_t { kLeft, kRight };
  struct Lock {
    double share = 0.5;
  };
  uint8_t width = 90;
  uint32_t play = 1250;  // thousandths
  int64_t delay_ms = 500;
  int32_t port = -1;
  Hinge hinge = Hinge::kLeft;
  bool glass = false;
  std::string color = "red";
  std::vector<std::string> signs;
  Lock lock;
};

const OptionTable<DoorOptions>& DoorTable() {
  using O = DoorOptions;
  static const auto* table = new OptionTable<O>{
      {.name = "width",
       .member = Member<&O::width>(),
       .range = {.min = 60, .max = 120, .what = "the width in cm"}},
      {.name = "play",
       .member = Thousandths<&O::play>(),
       .range = {.min = 1, .what = "the room around it", .zero = "have none"}},
      {.name = "delay_secs", .member = Seconds<&O::delay_ms>()},
      {.name = "port", .member = UpTo(65'535, Member<&O::port>())},
      {.name = "hinge",
       .member = Word<&O::hinge>(),
       .words =
           {{"left", O::Hinge::kLeft},
            {"right", O::Hinge::kRight},
            OptionWord::NotBuilt("top", "which needs a flap; use left")}},
      {.name = "glass", .member = Member<&O::glass>()},
      {.name = "color", .member = Member<&O::color>()},
      {.name = "signs", .member = Member<&O::signs>()},
      {.name = "lock_share", .member = Member<&O::lock, &O::Lock::share>()},
  };
  return *table;
}

// The values of a door with these options, or the reason why there is no such door.
std::map<std::string, OptionValue> Door(const std::map<std::string, OptionValue>& given) {
  DoorOptions door;
  Status status;
  for (const auto& [name, value] : given)
    status.Update(SetOption(*FindOption(DoorTable(), name), value, &door));
  status.Update(CheckRanges(DoorTable(), door));
  if (!status.ok()) throw py::value_error(status.ToString());
  std::map<std::string, OptionValue> values;
  for (const OptionSpec<DoorOptions>& spec : DoorTable()) values.emplace(spec.name, spec.member.get(door));
  return values;
}

// Runs steps until one fails, as code across libraries does. An empty step succeeds; another fails with
// its text.
Status RunSteps(const std::vector<std::string>& steps, int* done) {
  for (const std::string& step : steps) {
    ROUTER_RETURN_IF_ERROR(step.empty() ? absl::OkStatus() : absl::InvalidArgumentError(step));
    ++*done;
  }
  return absl::OkStatus();
}

std::map<std::string, int64_t> Limits() {
  return {
      {"kMaxHeadBytes", kMaxHeadBytes},
      {"kMaxHeadFields", kMaxHeadFields},
      {"kMaxTargetBytes", kMaxTargetBytes},
      {"kMaxFieldNameBytes", kMaxFieldNameBytes},
      {"kMaxConnectionTokens", kMaxConnectionTokens},
      {"kMaxChunkExtensionBytes", kMaxChunkExtensionBytes},
      {"kMaxTrailerBytes", kMaxTrailerBytes},
      {"kRelayBufferFirst", kRelayBufferFirst},
      {"kRelayBufferMost", kRelayBufferMost},
      {"kFairnessBytes", kFairnessBytes},
      {"kMaxAccessLogBytes", kMaxAccessLogBytes},
      {"kMaxLoggedTextBytes", kMaxLoggedTextBytes},
      {"kMaxPipelinedBytes", kMaxPipelinedBytes},
      {"kSmallBodyBytes", kSmallBodyBytes},
      {"kStreamTailBytes", kStreamTailBytes},
      {"kUsageBytes", kUsageBytes},
      {"kWeightOne", kWeightOne},
      {"kMinWeight", kMinWeight},
      {"kMaxWeight", kMaxWeight},
      {"kMaxWorkers", kMaxWorkers},
      {"kReservedAdminConnections", kReservedAdminConnections},
  };
}

}  // namespace

void BindTestingBase(py::module_& testing) {
  testing.def("door", &Door);
  testing.def("check", [](bool condition) { ROUTER_CHECK(condition, "the caller wanted to see it fail"); });

  testing.def("steady_now_nanos", [] { return SteadyClock().NowNanos(); });
  py::class_<ManualClock>(testing, "ManualClock")
      .def(py::init<>())
      .def("now_nanos", &ManualClock::NowNanos)
      .def("advance", &ManualClock::Advance);

  testing.def("entropy_seed", &Random::EntropySeed);
  py::class_<Random>(testing, "Random")
      .def(py::init<uint64_t>(), py::arg("seed"))
      .def("next", &Random::Next)
      .def("below", &Random::Below);

  using Pairs = std::vector<std::pair<std::string, std::string>>;
  testing.def("find_header", [](const Pairs& pairs, const std::string& name) -> std::optional<py::bytes> {
    const std::vector<HeaderField> fields = [&] {
      std::vector<HeaderField> views;
      for (const auto& [key, value] : pairs) views.push_back({key, value});
      return views;
    }();
    const std::optional<std::string_view> value = FindHeader(fields, name);
    if (!value) return std::nullopt;
    return py::bytes(value->data(), value->size());
  });

  testing.def("limits", &Limits);

  py::enum_<LogLevel>(testing, "LogLevel")
      .value("DEBUG", LogLevel::kDebug)
      .value("INFO", LogLevel::kInfo)
      .value("WARNING", LogLevel::kWarning)
      .value("ERROR", LogLevel::kError)
      .value("OFF", LogLevel::kOff);
  testing.def(
      "configure_log",
      [](LogLevel level, bool json, const std::string& directory) {
        const LogFormat format = json ? LogFormat::kJson : LogFormat::kText;
        return std::string(
            ConfigureLog({.level = level, .format = format, .directory = directory}).message());
      },
      py::arg("level") = LogLevel::kInfo, py::arg("json") = false, py::arg("directory") = "");
  testing.def("log_enabled", &LogEnabled);
  testing.def("log", [](LogLevel level, const std::string& message) { Log(level, message); });
  testing.def("log_access", [](const std::string& lines) { LogAccess(lines); });
  testing.def(
      "flush_log", [] { return FlushLog(10'000); }, py::call_guard<py::gil_scoped_release>());
  py::enum_<LogDestination>(testing, "LogDestination")
      .value("STDERR", LogDestination::kStderr)
      .value("STDOUT", LogDestination::kStdout)
      .value("FILE", LogDestination::kFile);
  testing.def("log_text", &LogText);
  testing.def("log_dropped", &LogDropped);
  testing.def("reopen_log", &ReopenLog);

  py::class_<LossReport>(testing, "LossReport")
      .def(py::init<>())
      .def(
          "add",
          [](LossReport& report, uint64_t lost, int64_t now_ns) -> std::optional<std::pair<uint64_t, bool>> {
            const auto news = report.Add(lost, now_ns);
            if (!news) return std::nullopt;
            return std::pair(news->lost, news->over);
          },
          py::arg("lost"), py::arg("now_ns"));
  testing.def("use_type_map", &UseTypeMap, py::arg("owned"), py::arg("referred"));
  testing.def(
      "write_briefly",
      [](int descriptor, const std::string& bytes, int timeout_ms) {
        WriteBriefly(descriptor, bytes, timeout_ms);
      },
      py::call_guard<py::gil_scoped_release>());
  testing.def(
      "write_all", [](int descriptor, const std::string& bytes) { return WriteAll(descriptor, bytes); },
      py::call_guard<py::gil_scoped_release>());

  py::class_<StringSnapshot::Cached>(testing, "CachedString").def("get", [](StringSnapshot::Cached& cached) {
    return *cached.Get();
  });
  py::class_<StringSnapshot>(testing, "StringSnapshot")
      .def(py::init([](const std::string& value) {
        return std::make_unique<StringSnapshot>(std::make_shared<const std::string>(value));
      }))
      .def("load", [](const StringSnapshot& snapshot) { return *snapshot.Load(); })
      .def(
          "publish",
          [](StringSnapshot& snapshot, const std::string& next) {
            snapshot.Publish(std::make_shared<const std::string>(next));
          })
      .def("holders", [](const StringSnapshot& snapshot) { return snapshot.Load().use_count() - 1; })
      .def(
          "cached", [](const StringSnapshot& s) { return StringSnapshot::Cached(&s); },
          py::keep_alive<0, 1>())
      .def_property_readonly("version", &StringSnapshot::version);

  testing.def("run_steps", [](const std::vector<std::string>& steps) {
    int done = 0;
    const Status status = RunSteps(steps, &done);
    return std::make_pair(done, status.ok() ? std::string("ok") : std::string(status.message()));
  });

  testing.def("ascii_lower", [](const std::string& text) { return py::bytes(AsciiLower(text)); });
  testing.def("equals_ignore_case", [](const std::string& a, const std::string& b) {
    return EqualsIgnoreCase(a, b);
  });
  testing.def(
      "trim_blanks", [](const std::string& text) { return py::bytes(std::string(TrimBlanks(text))); });
  testing.def("parse_decimal", [](const std::string& digits) { return ParseDecimal(digits); });
  testing.def("hex16", &Hex16);
  testing.def("cut_at_character", [](const std::string& text, size_t limit) {
    return py::bytes(std::string(CutAtCharacter(text, limit)));
  });
  testing.def("json_quoted", [](const std::string& text) { return py::bytes(JsonQuoted(text)); });
  testing.def("nearest_name", [](const std::string& name, const std::vector<std::string>& candidates) {
    const std::vector<std::string_view> views(candidates.begin(), candidates.end());
    return std::string(NearestName(name, views));
  });

  testing.def("write_whole_file", [](const std::string& path, const py::bytes& bytes) {
    int error = 0;
    const Status written = WriteWholeFile(path, bytes, &error);
    return std::make_pair(written.ok() ? std::string() : written.ToString(), error);
  });
  testing.def(
      "read_whole_file",
      [](const std::string& path, uint64_t most) {
        int error = 0;
        const StatusOr<std::string> bytes = ReadWholeFile(path, most, &error);
        return py::make_tuple(
            bytes.ok() ? py::object(py::bytes(*bytes)) : py::none(),
            bytes.ok() ? std::string() : bytes.status().ToString(), error);
      },
      py::arg("path"), py::arg("most") = 1 << 20);

  testing.def("version", [] { return std::string(Version()); });
}

}  // namespace vllm_router
