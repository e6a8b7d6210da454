#include "bindings/arguments.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <type_traits>

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

namespace {

// For objects that pass PyIndex_Check and are no text; an element of a list or an object in another
// sequence.
template <typename T>
T Integer(PyObject* item, const char* what, Py_ssize_t at) {
  const auto where = [&] { return std::string(what) + "[" + std::to_string(at) + "]"; };
  py::object converted;
  if (!PyLong_Check(item)) [[unlikely]] {
    if (PyIndex_Check(item) == 0) {
      throw py::type_error(where() + " is of type " + TypeName(item) + "; it must be an integer");
    }
    converted = py::reinterpret_steal<py::object>(PyNumber_Index(item));
    if (!converted) throw py::error_already_set();
    item = converted.ptr();
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(item, &overflow);
  if (overflow != 0 || number < static_cast<long long>(std::numeric_limits<T>::min()) ||
      (sizeof(T) < sizeof(number) && number > static_cast<long long>(std::numeric_limits<T>::max()))) {
    throw py::value_error(
        where() + " is " + Show(item) +
        (std::is_unsigned_v<T> ? "; a token id is an integer between " : "; it must be between ") +
        std::to_string(std::numeric_limits<T>::min()) + " and " +
        std::to_string(std::numeric_limits<T>::max()));
  }
  return static_cast<T>(number);
}

// True if an item of the buffer is a T, by the format letters of the module struct, with this machine's
// sizes.
template <typename T>
bool IsFormatOf(const Py_buffer& buffer) {
  std::string_view format = buffer.format != nullptr ? buffer.format : "B";
  const std::string_view orders = std::endian::native == std::endian::little ? "@=<" : "@=>!";
  if (!format.empty() && orders.find(format.front()) != std::string_view::npos) format.remove_prefix(1);
  const std::string_view letters = std::is_unsigned_v<T> ? "ILQN" : "ilqn";
  return format.size() == 1 && letters.find(format.front()) != std::string_view::npos &&
         buffer.itemsize == static_cast<Py_ssize_t>(sizeof(T));
}

template <typename T>
void CopyBuffer(py::handle value, const char* what, const char* dtype, std::vector<T>* copied) {
  struct Held : Py_buffer {
    ~Held() { PyBuffer_Release(this); }
  };
  Held buffer{};
  if (PyObject_GetBuffer(value.ptr(), &buffer, PyBUF_CONTIG_RO | PyBUF_FORMAT) != 0) {
    if (!PyErr_ExceptionMatches(PyExc_BufferError)) throw py::error_already_set();
    PyErr_Clear();
    throw py::value_error(std::string(what) + " is not contiguous; pass a contiguous one, such as a copy");
  }
  if (!IsFormatOf<T>(buffer)) {
    throw py::type_error(
        std::string(what) + " is of type " + TypeName(value) + " with items of format '" +
        (buffer.format != nullptr ? buffer.format : "B") + "'; it must hold " + dtype + "; pass np.asarray(" +
        what + ", dtype=np." + dtype + ")");
  }
  if (buffer.ndim != 1) {
    throw py::value_error(
        std::string(what) + " has " + std::to_string(buffer.ndim) + " dimensions; it must have 1");
  }
  copied->resize(static_cast<size_t>(buffer.len) / sizeof(T));
  if (buffer.len != 0) std::memcpy(copied->data(), buffer.buf, static_cast<size_t>(buffer.len));
}

}  // namespace

template <typename T>
std::span<const T> Integers(py::handle value, const char* what, const char* dtype, std::vector<T>* copied) {
  if (py::isinstance<py::array>(value)) return ArrayView<T>(value, what, dtype);
  const bool is_text = PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr());
  py::object kept;
  if (!PyList_Check(value.ptr()) && !PyTuple_Check(value.ptr())) {
    if (is_text || PyDict_Check(value.ptr())) {
    } else if (PyObject_CheckBuffer(value.ptr()) != 0) {
      CopyBuffer(value, what, dtype, copied);
      return *copied;
    } else if (PyObject_HasAttrString(value.ptr(), "__array__") != 0) {
      kept = value.attr("__array__")();
      const std::span<const T> view = ArrayView<T>(kept, what, dtype);
      copied->assign(view.begin(), view.end());
      return *copied;
    } else if (PySequence_Check(value.ptr()) != 0) {
      kept = py::reinterpret_steal<py::object>(PySequence_Tuple(value.ptr()));
      if (!kept) throw py::error_already_set();
      value = kept;
    }
    if (!kept) {
      throw py::type_error(
          std::string(what) + " is of type " + TypeName(value) + "; it must be an array of " + dtype +
          " or a sequence of integers; pass np.asarray(" + what + ", dtype=np." + dtype + ")");
    }
  }
  // Code run by __index__ may change the list.
  copied->clear();
  copied->reserve(static_cast<size_t>(PySequence_Fast_GET_SIZE(value.ptr())));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(value.ptr()); ++i) {
    const auto item = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(value.ptr(), i));
    copied->push_back(Integer<T>(item.ptr(), what, i));
  }
  return *copied;
}

template std::span<const uint32_t> Integers(py::handle, const char*, const char*, std::vector<uint32_t>*);
template std::span<const int64_t> Integers(py::handle, const char*, const char*, std::vector<int64_t>*);

bool IsMissing(py::handle value) {
  if (PyFloat_Check(value.ptr())) return std::isnan(PyFloat_AS_DOUBLE(value.ptr()));
  const std::string_view type = Py_TYPE(value.ptr())->tp_name;
  return type.ends_with("NAType");
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

py::int_ WholeNumber(py::handle value, const char* what) {
  if (PyIndex_Check(value.ptr()) == 0)
    throw py::type_error(std::string(what) + " is of type " + TypeName(value) + "; it must be an int");
  auto number = py::reinterpret_steal<py::int_>(PyNumber_Index(value.ptr()));
  if (!number) throw py::error_already_set();
  return number;
}

uint32_t BlockSize(py::handle value) {
  int overflow = 0;
  const long long size = PyLong_AsLongLongAndOverflow(WholeNumber(value, "block_size").ptr(), &overflow);
  if (overflow != 0 || size < 1 || size > kMaxBlockSize) {
    throw py::value_error(
        "block_size is " + Show(value) + "; it must be 1 to " + std::to_string(kMaxBlockSize) +
        ", and the same as the engine's (vLLM: --block-size, default 16)");
  }
  return static_cast<uint32_t>(size);
}

}  // namespace vllm_router
