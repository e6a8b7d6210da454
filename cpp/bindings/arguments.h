// Arguments from Python, read without copying if possible. An invalid one is rejected with a TypeError
// or ValueError that names the argument, its value and the remedy. All with the GIL.
#pragma once

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace vllm_router {

// From this size on a call lets other threads run: parsing or hashing takes longer than 5 us.
inline constexpr size_t kReleaseGilBytes = 32 * 1024;

// Longer values are not shown in messages: they may be prompts.
inline constexpr size_t kLongestShownValue = 80;

std::string TypeName(pybind11::handle value);
// Its repr(), or only its type and length: "a str of 1000000 characters".
std::string Show(pybind11::handle value);

// The bytes of a str (as UTF-8), bytes, or any object with a contiguous buffer; held for as long as this
// lives.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() {
    if (buffer_.obj != nullptr) PyBuffer_Release(&buffer_);
  }

  // False when `value` has no bytes.
  bool Hold(pybind11::handle value) {
    if (PyUnicode_Check(value.ptr())) {
      Py_ssize_t size = 0;
      const char* data = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
      if (data == nullptr) throw pybind11::error_already_set();
      view_ = {data, static_cast<size_t>(size)};
    } else if (PyBytes_Check(value.ptr())) {
      view_ = {PyBytes_AS_STRING(value.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))};
    } else if (PyObject_CheckBuffer(value.ptr()) != 0) {
      if (PyObject_GetBuffer(value.ptr(), &buffer_, PyBUF_SIMPLE) != 0) throw pybind11::error_already_set();
      view_ = {static_cast<const char*>(buffer_.buf), static_cast<size_t>(buffer_.len)};
    } else {
      return false;
    }
    return true;
  }

  std::string_view view() const { return view_; }

 private:
  Py_buffer buffer_{};
  std::string_view view_;
};

// A str or bytes that the caller keeps alive.
std::optional<std::string_view> TextView(pybind11::handle value);

// `what` ("token_ids") must be a 1-D contiguous array of exactly T; no copy is made.
template <typename T>
std::span<const T> ArrayView(pybind11::handle value, const char* what, const char* dtype) {
  const std::string remedy = std::string("; pass np.ascontiguousarray(") + what + ", dtype=np." + dtype + ")";
  if (!pybind11::isinstance<pybind11::array>(value)) {
    throw pybind11::type_error(
        std::string(what) + " is of type " + TypeName(value) + "; it must be a numpy array of " + dtype +
        remedy);
  }
  const auto array = pybind11::reinterpret_borrow<pybind11::array>(value);
  if (!array.dtype().equal(pybind11::dtype::of<T>())) {
    throw pybind11::type_error(
        std::string(what) + " has dtype " + std::string(pybind11::str(array.dtype())) + "; it must be " +
        dtype + remedy);
  }
  if (array.ndim() != 1) {
    throw pybind11::value_error(
        std::string(what) + " has " + std::to_string(array.ndim()) +
        " dimensions; it must have 1: all rows one after the other");
  }
  if ((array.flags() & pybind11::array::c_style) == 0) {
    throw pybind11::value_error(
        std::string(what) + " is not contiguous; it must be, since it is not copied" + remedy);
  }
  return {static_cast<const T*>(array.data()), static_cast<size_t>(array.size())};
}

// `what` as integers from 0 (of int64_t: from its minimum) to the maximum of T: an array as above, not
// copied. Copied are a list, a tuple, a range or another sequence of objects with __index__, such as
// numpy's integers; an object with the buffer protocol (array.array, memoryview) that holds exactly T;
// and an object with __array__ (a pandas Series).
template <typename T>
std::span<const T> Integers(
    pybind11::handle value, const char* what, const char* dtype, std::vector<T>* copied);
extern template std::span<const uint32_t> Integers(
    pybind11::handle, const char*, const char*, std::vector<uint32_t>*);
extern template std::span<const int64_t> Integers(
    pybind11::handle, const char*, const char*, std::vector<int64_t>*);

// Token ids of one request.
inline std::span<const uint32_t> TokenIds(pybind11::handle value, std::vector<uint32_t>* copied) {
  return Integers(value, "token_ids", "uint32", copied);
}

// A float that is NaN, or pandas.NA: the missing values of tables.
bool IsMissing(pybind11::handle value);

// Row i is token_ids[offsets[i]:offsets[i + 1]]; there are `ids` of them.
void CheckOffsets(std::span<const int64_t> offsets, size_t ids);

// An int or an object with __index__, such as numpy's; TypeError that names `what` for anything else.
pybind11::int_ WholeNumber(pybind11::handle value, const char* what);

// Tokens per block.
uint32_t BlockSize(pybind11::handle value);

}  // namespace vllm_router
