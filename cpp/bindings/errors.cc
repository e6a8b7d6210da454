// The one table from Status to Python exceptions. The classes are those of python/vllm_router/errors.py,
// which says when each is raised.
#include "bindings/errors.h"

#include <pybind11/pybind11.h>

#include <string>

namespace vllm_router {

namespace py = pybind11;

namespace {

struct Row {
  absl::StatusCode code;
  const char* module;
  const char* exception;
};

constexpr const char kBuiltins[] = "builtins";
constexpr const char kOurs[] = "vllm_router.errors";

constexpr Row kTable[] = {
    {absl::StatusCode::kInvalidArgument, kBuiltins, "ValueError"},
    {absl::StatusCode::kOutOfRange, kBuiltins, "ValueError"},
    {absl::StatusCode::kUnimplemented, kBuiltins,
     "ValueError"},  // an option for a feature that is not implemented yet
    {absl::StatusCode::kDeadlineExceeded, kBuiltins, "TimeoutError"},
    {absl::StatusCode::kFailedPrecondition, kBuiltins, "OSError"},  // a port that is not available
    {absl::StatusCode::kUnavailable, kOurs, "NoWorkersError"},
    {absl::StatusCode::kNotFound, kOurs, "WorkerNotFoundError"},
    {absl::StatusCode::kAlreadyExists, kOurs, "WorkerExistsError"},
    {absl::StatusCode::kAborted, kOurs, "TicketFinishedError"},
    {absl::StatusCode::kDataLoss, kOurs, "IndexFileError"},
};
constexpr Row kAnyOther = {absl::StatusCode::kUnknown, kOurs, "RouterError"};

const Row& Find(absl::StatusCode code) {
  for (const Row& row : kTable) {
    if (row.code == code) return row;
  }
  return kAnyOther;
}

}  // namespace

namespace {

[[noreturn]] void ThrowNamed(const char* module, const char* exception, const std::string& message) {
  const py::object type = py::module_::import(module).attr(exception);
  py::set_error(type, message.c_str());
  throw py::error_already_set();
}

}  // namespace

void Throw(const Status& status) {
  const Row& row = Find(status.code());
  ThrowNamed(row.module, row.exception, std::string(status.message()));
}

void ThrowAs(const char* exception, const std::string& message) { ThrowNamed(kOurs, exception, message); }

}  // namespace vllm_router
