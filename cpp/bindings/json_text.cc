#include "bindings/json_text.h"

#include <cmath>
#include <string_view>

namespace vllm_router {

namespace py = pybind11;

namespace {

std::string_view Utf8(py::handle text) {
  Py_ssize_t size = 0;
  const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (data == nullptr) throw py::error_already_set();  // a lone surrogate
  return {data, static_cast<size_t>(size)};
}

void AppendQuoted(std::string_view raw, std::string* text) {
  constexpr char kHex[] = "0123456789abcdef";
  text->push_back('"');
  size_t copied = 0;
  for (size_t i = 0; i < raw.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(raw[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    text->append(raw.substr(copied, i - copied));
    copied = i + 1;
    text->push_back('\\');
    switch (c) {
      case '"':
      case '\\':
        text->push_back(static_cast<char>(c));
        break;
      case '\b':
        text->push_back('b');
        break;
      case '\t':
        text->push_back('t');
        break;
      case '\n':
        text->push_back('n');
        break;
      case '\f':
        text->push_back('f');
        break;
      case '\r':
        text->push_back('r');
        break;
      default:
        text->append("u00").append({kHex[c >> 4], kHex[c & 15]});
    }
  }
  text->append(raw.substr(copied)).push_back('"');
}

// A subclass of int may have its own str(); JSON needs the number.
void AppendInteger(py::handle value, std::string* text) {
  int overflow = 0;
  const long long small = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow == 0) {
    text->append(std::to_string(small));
    return;
  }
  const auto digits = py::reinterpret_steal<py::object>(PyLong_Type.tp_repr(value.ptr()));
  if (!digits) throw py::error_already_set();
  text->append(Utf8(digits));
}

void AppendFloat(py::handle value, std::string* text) {
  const double number = PyFloat_AS_DOUBLE(value.ptr());
  if (!std::isfinite(number)) {
    throw py::value_error(
        "a number in the request is " + std::string(py::str(value)) +
        "; JSON has finite numbers only: send null or leave it out");
  }
  char* digits = PyOS_double_to_string(number, 'r', 0, Py_DTSF_ADD_DOT_0, nullptr);
  if (digits == nullptr) throw py::error_already_set();
  text->append(digits);
  PyMem_Free(digits);
}

void AppendKey(py::handle key, std::string* text) {
  if (PyUnicode_Check(key.ptr())) return AppendQuoted(Utf8(key), text);
  if (!key.is_none() && !PyLong_Check(key.ptr()) && !PyFloat_Check(key.ptr())) {
    throw py::type_error(
        "a member name in the request is of type " + std::string(Py_TYPE(key.ptr())->tp_name) +
        "; JSON has strings only: use str");
  }
  text->push_back('"');
  AppendJson(key, text);
  text->push_back('"');
}

// Calls Python's own guard against endless recursion, for values that contain themselves.
struct RecursionGuard {
  RecursionGuard() {
    if (Py_EnterRecursiveCall(" while writing a request as JSON") != 0) throw py::error_already_set();
  }
  ~RecursionGuard() { Py_LeaveRecursiveCall(); }
};

// The dict for an object that JSON does not have; null if there is none.
py::object DumpOf(py::handle value) {
  if (PyType_Check(value.ptr())) return {};
  py::object members;
  if (py::hasattr(value, "model_dump")) {
    members = value.attr("model_dump")();
  } else if (py::hasattr(value, "__dict__")) {
    members = value.attr("__dict__");
  }
  return members && PyDict_Check(members.ptr()) ? members : py::object();
}

// A member of a dumped object that a client would not send.
bool IsLeftOut(py::handle key, py::handle member) {
  if (member.is_none()) return true;
  return PyUnicode_Check(key.ptr()) && Utf8(key).starts_with('_');
}

class Writer {
 public:
  Writer(std::string* text, JsonObjects objects) : text_(text), objects_(objects) {}

  // `dumped`: the value is part of a dumped object.
  void Append(py::handle value, bool dumped) {
    PyObject* const object = value.ptr();
    if (PyUnicode_Check(object)) return AppendQuoted(Utf8(value), text_);
    if (object == Py_None) return static_cast<void>(text_->append("null"));
    if (object == Py_True) return static_cast<void>(text_->append("true"));
    if (object == Py_False) return static_cast<void>(text_->append("false"));
    if (PyLong_Check(object)) return AppendInteger(value, text_);
    if (PyFloat_Check(object)) return AppendFloat(value, text_);
    const RecursionGuard guard;
    if (PyDict_Check(object)) return AppendDict(object, dumped);
    if (PyList_Check(object) || PyTuple_Check(object)) return AppendList(object, dumped);
    if (objects_ == JsonObjects::kDumped) {
      if (const py::object members = DumpOf(value)) return AppendDict(members.ptr(), true);
    }
    throw py::type_error(
        "a value in the request is of type " + std::string(Py_TYPE(object)->tp_name) +
        ", which JSON does not have; use dict, list, str, int, float, bool or None (a pydantic "
        "model has .model_dump())");
  }

 private:
  void AppendDict(PyObject* dict, bool dumped) {
    text_->push_back('{');
    bool first = true;
    PyObject* next_key = nullptr;
    PyObject* next_member = nullptr;
    Py_ssize_t position = 0;
    while (PyDict_Next(dict, &position, &next_key, &next_member) != 0) {
      // Appending may run Python code, which may change the dict.
      const auto key = py::reinterpret_borrow<py::object>(next_key);
      const auto member = py::reinterpret_borrow<py::object>(next_member);
      if (dumped && IsLeftOut(key, member)) continue;
      if (!first) text_->push_back(',');
      first = false;
      AppendKey(key, text_);
      text_->push_back(':');
      Append(member, dumped);
    }
    text_->push_back('}');
  }

  void AppendList(PyObject* list, bool dumped) {
    text_->push_back('[');
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list); ++i) {
      if (i != 0) text_->push_back(',');
      const auto item = py::reinterpret_borrow<py::object>(PySequence_Fast_GET_ITEM(list, i));
      Append(item, dumped);
    }
    text_->push_back(']');
  }

  std::string* const text_;
  const JsonObjects objects_;
};

}  // namespace

void AppendJson(py::handle value, std::string* text, JsonObjects objects) {
  Writer(text, objects).Append(value, /*dumped=*/false);
}

}  // namespace vllm_router
