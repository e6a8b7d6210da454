#include "bindings/arguments.h"

#include <string>

#include "base/limits.h"

namespace vllm_router {

namespace py = pybind11;

std::string TypeName(py::handle value) { return Py_TYPE(value.ptr())->tp_name; }

std::string Show(py::handle value) {
  const bool is_text = PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr());
  const Py_ssize_t length =
      PyObject_HasAttrString(value.ptr(), "__len__") != 0 ? PyObject_Size(value.ptr()) : -1;
  if (length < 0) PyErr_Clear();
  const auto limit = static_cast<Py_ssize_t>(kLongestShownValue);
  if (length <= limit) {
    std::string shown(py::repr(value));
    if (shown.size() <= kLongestShownValue) return shown;
  }
  std::string text = "a " + TypeName(value);
  if (length >= 0) text += " of " + std::to_string(length) + (is_text ? " characters" : " items");
  return text;
}

std::optional<std::string_view> TextView(py::handle value) {
  if (PyUnicode_Check(value.ptr())) {
    Py_ssize_t size = 0;
    const char* data = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (data == nullptr) throw py::error_already_set();
    return std::string_view(data, static_cast<size_t>(size));
  }
  if (PyBytes_Check(value.ptr())) {
    return std::string_view(
        PyBytes_AS_STRING(value.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(value.ptr())));
  }
  return std::nullopt;
}

std::span<const uint32_t> TokenIds(py::handle value, std::vector<uint32_t>* copied) {
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
    return ArrayView<uint32_t>(value, "token_ids", "uint32");
  }
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(value.ptr());
  copied->resize(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const item = PySequence_Fast_GET_ITEM(value.ptr(), i);
    int overflow = 0;
    const long long id = PyLong_Check(item) ? PyLong_AsLongLongAndOverflow(item, &overflow) : -1;
    if (overflow != 0 || id < 0 || id > UINT32_MAX) {
      throw py::value_error(
          "token_ids[" + std::to_string(i) + "] is " + Show(item) +
          "; a token id is an integer between 0 and 4294967295");
    }
    (*copied)[static_cast<size_t>(i)] = static_cast<uint32_t>(id);
  }
  return *copied;
}

void CheckOffsets(std::span<const int64_t> offsets, size_t ids) {
  if (offsets.empty())
    throw py::value_error("offsets is empty; n rows have n + 1 offsets, so 0 rows have [0]");
  int64_t before = 0;
  for (size_t i = 0; i < offsets.size(); ++i) {
    if (offsets[i] < before) {
      throw py::value_error(
          "offsets[" + std::to_string(i) + "] is " + std::to_string(offsets[i]) +
          "; offsets start at 0 or later and never fall, and the one before it is " + std::to_string(before));
    }
    before = offsets[i];
  }
  if (static_cast<uint64_t>(before) > ids) {
    throw py::value_error(
        "offsets[" + std::to_string(offsets.size() - 1) + "] is " + std::to_string(before) +
        "; token_ids has only " + std::to_string(ids) + " ids");
  }
}

uint32_t BlockSize(py::handle value) {
  if (!PyLong_Check(value.ptr()))
    throw py::type_error("block_size is of type " + TypeName(value) + "; it must be an int");
  int overflow = 0;
  const long long size = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0 || size < 1 || size > kMaxBlockSize) {
    throw py::value_error(
        "block_size is " + Show(value) + "; it must be 1 to " + std::to_string(kMaxBlockSize) +
        ", and the same as the engine's (vLLM: --block-size, 16 unless told)");
  }
  return static_cast<uint32_t>(size);
}

}  // namespace vllm_router
