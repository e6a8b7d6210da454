#include "bindings/index_file.h"

#include <absl/container/flat_hash_set.h>

#include <cerrno>

#include "base/limits.h"
#include "base/text.h"
#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/errors.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

// As the system needs it: bytes.
std::string PathOf(py::handle path) {
  PyObject* bytes = nullptr;
  if (PyUnicode_FSConverter(path.ptr(), &bytes) == 0) throw py::error_already_set();
  const auto held = py::reinterpret_steal<py::bytes>(bytes);
  return std::string(std::string_view(held));
}

// As Python itself raises it: FileNotFoundError, PermissionError and so on, with errno and filename.
[[noreturn]] void ThrowSystemError(int error, const std::string& path) {
  errno = error;
  PyErr_SetFromErrnoWithFilename(PyExc_OSError, path.c_str());
  throw py::error_already_set();
}

}  // namespace

void WriteNames(const WorkerNames& names, ImageWriter* image) {
  image->Number(uint64_t{names.size()});
  for (const py::object& name : names) {
    image->Number(uint8_t{!name.is_none()});
    if (!name.is_none()) image->Text(*TextView(name));
  }
}

StatusOr<WorkerNames> ReadNames(ImageReader* image) {
  const uint64_t count = image->Count(1);
  if (count > kMaxWorkers) {
    return BadImage("it names ", count, " workers; at most ", kMaxWorkers, " are known");
  }
  WorkerNames names;
  absl::flat_hash_set<std::string_view> seen;
  for (uint64_t place = 0; place < count; ++place) {
    const auto state = image->Number<uint8_t>();
    if (state > 1) {
      return BadImage("name ", place, " has the mark ", int{state}, "; it must be 0 or 1");
    }
    if (state == 0) {
      names.push_back(py::none());
      continue;
    }
    const std::string_view text = image->Text();
    PyObject* const name = PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), nullptr);
    if (name == nullptr) {
      PyErr_Clear();
      return BadImage("name ", place, " of a worker is not UTF-8");
    }
    names.push_back(py::reinterpret_steal<py::object>(name));
    if (!seen.insert(text).second) return BadImage("name ", place, " appears twice");
  }
  return names;
}

void SaveFile(py::handle path, std::string_view image) {
  const std::string name = PathOf(path);
  int error = 0;
  Status saved;
  {
    const py::gil_scoped_release release;
    saved = SaveIndexFile(name, image, &error);
  }
  if (error != 0) ThrowSystemError(error, name);
  ThrowIfError(saved);
}

std::string LoadFile(py::handle path) {
  const std::string name = PathOf(path);
  int error = 0;
  StatusOr<std::string> image;
  {
    const py::gil_scoped_release release;
    image = LoadIndexFile(name, &error);
  }
  if (error != 0) ThrowSystemError(error, name);
  return ValueOrThrow(std::move(image));
}

std::string FileSource(py::handle path) { return Concat("index file ", Quoted(PathOf(path))); }

void ThrowBadIndex(std::string_view source, const Status& what) { Throw(BadIndex(source, what)); }

}  // namespace vllm_router
