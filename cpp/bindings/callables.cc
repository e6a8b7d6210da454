#include "bindings/callables.h"

#include <absl/container/flat_hash_map.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "bindings/arguments.h"

namespace vllm_router {

namespace py = pybind11;

namespace {

// ---- The contents of _core.pyi -----------------------------------------------------------------------

struct Parameter {
  enum Kind {
    kByPosition,
    kByName,
    kAnyName
  };  // the first may be given by name as well; the last is **kwargs
  std::string_view name;
  std::string_view annotation;
  Kind kind;
  bool required;
};

struct Documented {
  std::string_view name;  // Router.select
  const char* doc;
  std::span<const Parameter> parameters;  // of a property: one without a name, which has its type
};

#include <core_docs.inc>  // kDocumented, sorted by name

const Documented* FindDocumented(std::string_view name) {
  const auto* const found = std::ranges::lower_bound(kDocumented, name, {}, &Documented::name);
  return found != std::end(kDocumented) && found->name == name ? found : nullptr;
}

// ---- Functions under guard ---------------------------------------------------------------------------

struct Guarded {
  std::string name;  // as in messages: Router.select(), HashRing(), SimulatedWorkerOptions.port
  const Documented* documented = nullptr;
  py::handle owner;  // the class of a method
};

// By pybind11's record of the function, which lives as long as the function. Never changed after the import.
using GuardedFunctions = absl::flat_hash_map<PyObject*, Guarded>;
GuardedFunctions& Functions() {
  static auto* functions = new GuardedFunctions;
  return *functions;
}

// A call as received: values by position (of a method, the instance first), then values by name.
struct Call {
  std::vector<py::handle> by_position;
  std::vector<std::pair<std::string, py::handle>> by_name;
};

// ---- Which argument does not fit ---------------------------------------------------------------------

// The alternatives of a union: "str | dict[str, Any | None] | None" has three.
std::vector<std::string_view> Alternatives(std::string_view annotation) {
  std::vector<std::string_view> found;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= annotation.size(); ++i) {
    const char c = i < annotation.size() ? annotation[i] : '|';
    depth += c == '[' ? 1 : c == ']' ? -1 : 0;
    if (c != '|' || depth != 0) continue;
    found.push_back(TrimBlanks(annotation.substr(begin, i - begin)));
    begin = i + 1;
  }
  return found;
}

// False only when the value certainly does not fit; annotations beyond these types are not checked here.
bool MayFit(std::string_view type, PyObject* value) {
  const bool is_number = PyLong_Check(value) || PyFloat_Check(value);
  if (type == "None") return value == Py_None;
  if (type == "bool") return PyBool_Check(value);
  if (type == "int") return PyIndex_Check(value) != 0;
  if (type == "float") return is_number || (PyNumber_Check(value) != 0 && !PyUnicode_Check(value));
  if (type == "str" || type.starts_with("Literal[")) return PyUnicode_Check(value);
  if (type == "bytes") return PyBytes_Check(value);
  if (type.starts_with("dict[")) return PyDict_Check(value);
  for (const std::string_view many : {"list[", "tuple[", "Iterable[", "Sequence[", "Mapping[", "NDArray["}) {
    if (type.starts_with(many)) return !is_number && value != Py_None && !PyUnicode_Check(value);
  }
  return true;
}

bool MayFitAny(std::string_view annotation, py::handle value) {
  const std::vector<std::string_view> types = Alternatives(annotation);
  return std::ranges::any_of(types, [&](std::string_view type) { return MayFit(type, value.ptr()); });
}

// Numbers are shown; of other values only the type, since they may be prompts.
std::string ShowNumber(py::handle value) {
  const bool is_number = PyLong_CheckExact(value.ptr()) || PyFloat_CheckExact(value.ptr());
  return is_number || value.is_none() ? Show(value) : "a value of type " + TypeName(value);
}

std::string Clipped(const std::string& name) {
  return name.size() <= kLongestShownValue ? "'" + name + "'" : Concat("of ", name.size(), " characters");
}

std::string Joined(std::span<const std::string_view> names) {
  std::string text;
  for (const std::string_view name : names) text.append(text.empty() ? "" : ", ").append(name);
  return text;
}

// Why the call fits none of the function's overloads.
std::string Mismatch(const Guarded& function, const Call& call) {
  const std::string& name = function.name;
  if (function.documented == nullptr) return name + " does not take such arguments; see help()";
  const std::span<const Parameter> parameters = function.documented->parameters;
  const bool is_method = !parameters.empty() && parameters[0].name == "self";

  if (is_method && (call.by_position.empty() || !py::isinstance(call.by_position[0], function.owner))) {
    const std::string class_name(py::str(function.owner.attr("__name__")));
    return name + " is a method; call it on an instance of " + class_name +
           (call.by_position.empty() ? std::string() : ", not on a " + TypeName(call.by_position[0]));
  }
  if (!parameters.empty() && parameters[0].name.empty()) {  // a property that is set
    return name + " is set to " +
           (call.by_position.size() < 2 ? "nothing" : ShowNumber(call.by_position[1])) + "; it must be " +
           std::string(parameters[0].annotation) + ", in its range";
  }

  std::vector<std::string_view> names;
  std::vector<std::string_view> by_position;
  bool any_name = false;
  for (const Parameter& parameter : parameters.subspan(is_method ? 1 : 0)) {
    if (parameter.kind == Parameter::kAnyName) {
      any_name = true;
      continue;
    }
    names.push_back(parameter.name);
    if (parameter.kind == Parameter::kByPosition) by_position.push_back(parameter.name);
  }
  const size_t given = call.by_position.size() - (is_method ? 1 : 0);

  for (const auto& [keyword, value] : call.by_name) {
    if (any_name || std::ranges::find(names, keyword) != names.end()) continue;
    const std::string_view nearest = NearestName(keyword, names);
    return name + " has no argument " + Clipped(keyword) +
           (!nearest.empty() ? Concat("; did you mean ", nearest, "?")
            : names.empty()  ? std::string("; it takes none")
                             : "; it takes " + Joined(names));
  }
  if (given > by_position.size()) {
    const std::string_view also = by_position.size() == names.size() ? ""
                                  : by_position.empty()              ? "; give them by name: "
                                                                     : "; give the others by name: ";
    const std::span<const std::string_view> others = std::span(names).subspan(by_position.size());
    return Concat(
        name, " takes ", by_position.empty() ? "no" : "at most ",
        by_position.empty() ? std::string() : Concat(by_position.size()),
        by_position.size() == 1 ? " argument by position" : " arguments by position",
        by_position.empty() ? std::string() : " (" + Joined(by_position) + ")", " and got ", given, also,
        also.empty() ? std::string() : Joined(others));
  }

  std::string shown;
  for (size_t i = 0; i < names.size(); ++i) {
    const Parameter& parameter = parameters[i + (is_method ? 1 : 0)];
    const auto named = std::ranges::find(call.by_name, names[i], [](const auto& pair) { return pair.first; });
    const bool positional = i < given;
    if (positional && named != call.by_name.end())
      return Concat(name, " got ", names[i], " twice, by position and by name; give it once");
    if (!positional && named == call.by_name.end()) {
      if (parameter.required) return Concat(name, " needs the argument ", names[i], ", which is missing");
      continue;
    }
    const py::handle value = positional ? call.by_position[i + (is_method ? 1 : 0)] : named->second;
    if (!MayFitAny(parameter.annotation, value)) {
      return Concat(
          name, ": ", names[i], " is of type ", TypeName(value), "; it must be ", parameter.annotation);
    }
    shown += Concat(shown.empty() ? "" : ", ", names[i], " is ", ShowNumber(value));
  }
  return name + " cannot take these arguments, one of which is out of its range: " + shown;
}

// ---- Errors that are raised to Python ----------------------------------------------------------------

void ReplaceAll(std::string_view what, std::string_view by, std::string* text) {
  for (size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + by.size()))
    text->replace(at, what.size(), by);
}

// Removes long texts from a message, whether they were an argument or inside a list or dict that was
// one.
void TakeOut(py::handle value, int depth, std::string* message) {
  if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr())) {
    const std::optional<std::string_view> text = TextView(value);
    if (text->size() <= kLongestShownValue) return;
    const std::string instead = Show(value);
    for (const std::string& shown : {std::string(*text), Quoted(*text)}) ReplaceAll(shown, instead, message);
  } else if (depth > 0 && PyDict_Check(value.ptr())) {
    for (const auto& [key, member] : py::reinterpret_borrow<py::dict>(value)) {
      TakeOut(key, depth - 1, message);
      TakeOut(member, depth - 1, message);
    }
  } else if (depth > 0 && (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr()))) {
    for (const py::handle member : py::iter(value)) TakeOut(member, depth - 1, message);
  }
}

bool TakesAnyName(const Guarded& function) {
  return function.documented != nullptr &&
         std::ranges::any_of(function.documented->parameters, [](const Parameter& parameter) {
           return parameter.kind == Parameter::kAnyName;
         });
}

// REQUIRES: an error is set. Its message is replaced if it quotes the arguments. An error of another
// kind, such as one raised by a caller's own iterator, is kept.
void CleanError(const Guarded& function, const Call& call) {
  py::error_already_set error;  // takes it
  const bool is_type_error = error.type().is(py::handle(PyExc_TypeError));
  if (error.type().is(py::handle(PyExc_UnicodeEncodeError))) {  // its repr() has the whole text
    Py_ssize_t start = 0;
    PyUnicodeEncodeError_GetStart(error.value().ptr(), &start);
    const auto text = py::reinterpret_steal<py::object>(PyUnicodeEncodeError_GetObject(error.value().ptr()));
    const auto letter = py::reinterpret_steal<py::object>(PySequence_GetSlice(text.ptr(), start, start + 1));
    const std::string reason =
        Concat("surrogates not allowed; it is character ", start, " of the text, which UTF-8 cannot carry");
    const py::object made = error.type()("utf-8", letter, 0, 1, reason);
    PyErr_SetObject(error.type().ptr(), made.ptr());
    return;
  }
  std::string message(py::str(error.value()));
  if (is_type_error && message.find("(): incompatible ") < kLongestShownValue) {
    PyErr_SetString(PyExc_TypeError, Mismatch(function, call).c_str());
    return;
  }
  if (message.size() <= kLongestShownValue) return error.restore();
  const std::string before = message;
  for (const py::handle value : call.by_position) TakeOut(value, 2, &message);
  // Settings of the server come from its operator, and may be paths of files, which its errors must
  // name.
  if (!TakesAnyName(function)) {
    for (const auto& [name, value] : call.by_name) TakeOut(value, 2, &message);
  }
  if (message == before) return error.restore();
  PyErr_SetString(error.type().ptr(), message.c_str());
}

void CleanErrorOf(PyObject* record, const Call& call) {
  const auto found = Functions().find(record);
  if (found == Functions().end() || PyErr_Occurred() == nullptr) return;
  try {
    CleanError(found->second, call);
  } catch (...) {  // any other error: the arguments stay out of it
    PyErr_Clear();
    PyErr_SetString(PyExc_TypeError, (found->second.name + " failed; see help()").c_str());
  }
}

// ---- Around pybind11's dispatcher --------------------------------------------------------------------

// One function for all functions of the extension. pybind11 3.1 takes arguments as an array, older
// versions as a tuple.
_PyCFunctionFastWithKeywords dispatch_array = nullptr;
PyCFunctionWithKeywords dispatch_tuple = nullptr;

// A method that is called through its twin; see CallThroughTwin().
struct Twin {
  static constexpr size_t kMaxArguments = 16;

  PyObject* record = nullptr;  // pybind11's of the method, by which calls come
  PyObject* target = nullptr;  // and of the twin
  size_t by_position = 0;
  std::vector<PyObject*> names;     // interned
  std::vector<PyObject*> defaults;  // both for the life of the process
};
Twin twin;

// Orders a call's values, the instance first. False: the call does not fit, or a name is not interned;
// then pybind11 handles it.
bool InOrder(PyObject* const* values, size_t count, PyObject* names, PyObject** ordered) {
  if (count == 0 || count > twin.by_position + 1) return false;
  std::fill_n(std::copy_n(values, count, ordered), twin.names.size() + 1 - count, nullptr);
  const Py_ssize_t named = names != nullptr ? PyTuple_GET_SIZE(names) : 0;
  for (Py_ssize_t i = 0; i < named; ++i) {
    const auto found = std::ranges::find(twin.names, PyTuple_GET_ITEM(names, i));
    if (found == twin.names.end()) return false;
    PyObject*& place = ordered[found - twin.names.begin() + 1];
    if (place != nullptr) return false;
    place = values[count + static_cast<size_t>(i)];
  }
  for (size_t i = 0; i < twin.names.size(); ++i) {
    if (ordered[i + 1] == nullptr) ordered[i + 1] = twin.defaults[i];
  }
  return true;
}

PyObject* Dispatch(PyObject* record, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  if (record == twin.record && names != nullptr) {
    std::array<PyObject*, Twin::kMaxArguments + 1> ordered;
    if (InOrder(values, static_cast<size_t>(PyVectorcall_NARGS(count)), names, ordered.data()))
      return dispatch_array(
          twin.target, ordered.data(), static_cast<Py_ssize_t>(twin.names.size() + 1), nullptr);
  }
  return dispatch_array(record, values, count, names);
}

PyObject* GuardedArray(PyObject* record, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  PyObject* const result = Dispatch(record, values, count, names);
  if (result == nullptr) [[unlikely]] {
    Call call{{values, values + count}, {}};
    for (Py_ssize_t i = 0; names != nullptr && i < PyTuple_GET_SIZE(names); ++i)
      call.by_name.emplace_back(py::str(py::handle(PyTuple_GET_ITEM(names, i))), values[count + i]);
    CleanErrorOf(record, call);
  }
  return result;
}

PyObject* GuardedTuple(PyObject* record, PyObject* values, PyObject* names) {
  PyObject* const result = dispatch_tuple(record, values, names);
  if (result == nullptr) [[unlikely]] {
    Call call;
    for (const py::handle value : py::reinterpret_borrow<py::tuple>(values))
      call.by_position.push_back(value);
    if (names != nullptr) {
      for (const auto& [name, value] : py::reinterpret_borrow<py::dict>(names))
        call.by_name.emplace_back(py::str(name), value);
    }
    CleanErrorOf(record, call);
  }
  return result;
}

// The function behind a method, a static method or itself; null if pybind11 did not make it.
PyObject* FunctionOf(py::handle value) {
  PyObject* function = value.ptr();
  if (function == nullptr || value.is_none()) return nullptr;
  if (PyInstanceMethod_Check(function)) function = PyInstanceMethod_GET_FUNCTION(function);
  if (Py_TYPE(function) == &PyStaticMethod_Type) function = py::object(value.attr("__func__")).ptr();
  const bool has_record = PyCFunction_Check(function) && PyCFunction_GET_SELF(function) != nullptr &&
                          !PyModule_Check(PyCFunction_GET_SELF(function));
  return has_record ? function : nullptr;
}

void Guard(PyObject* function, Guarded guarded) {
  PyMethodDef* const definition = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  void (*const given)() = reinterpret_cast<void (*)()>(definition->ml_meth);
  if (definition->ml_flags == (METH_FASTCALL | METH_KEYWORDS)) {
    const auto guard = reinterpret_cast<void (*)()>(&GuardedArray);
    if (given == guard) return;
    dispatch_array = reinterpret_cast<_PyCFunctionFastWithKeywords>(given);
    definition->ml_meth = reinterpret_cast<PyCFunction>(guard);
  } else if (definition->ml_flags == (METH_VARARGS | METH_KEYWORDS)) {
    const auto guard = reinterpret_cast<void (*)()>(&GuardedTuple);
    if (given == guard) return;
    dispatch_tuple = reinterpret_cast<PyCFunctionWithKeywords>(given);
    definition->ml_meth = reinterpret_cast<PyCFunction>(guard);
  } else {
    return;
  }
  Functions().emplace(PyCFunction_GET_SELF(function), std::move(guarded));
}

void SetDoc(PyObject* function, const char* doc) {
  PyMethodDef* const definition = reinterpret_cast<PyCFunctionObject*>(function)->m_ml;
  std::free(const_cast<char*>(definition->ml_doc));  // as pybind11 does with its copy
  definition->ml_doc = strdup(doc);
}

void DocumentMember(const std::string& scope, const std::string& name, py::handle value, py::handle owner) {
  const Documented* const documented = FindDocumented(scope + name);
  if (PyObject* const function = FunctionOf(value)) {
    const std::string shown = name == "__init__" ? scope.substr(0, scope.size() - 1) : scope + name;
    Guard(function, {shown + "()", documented, owner});
    if (documented != nullptr) SetDoc(function, documented->doc);
  } else if (PyObject_TypeCheck(value.ptr(), &PyProperty_Type)) {
    for (const char* const access : {"fget", "fset"}) {
      const py::object accessor = value.attr(access);
      if (PyObject* const function = FunctionOf(accessor)) Guard(function, {scope + name, documented, owner});
    }
    // A static property is of another type, whose docstring cannot be set; the stub has none for those.
    if (documented != nullptr && *documented->doc != 0) value.attr("__doc__") = documented->doc;
  }
}

}  // namespace

const char* ClassDoc(const char* name) {
  const Documented* const documented = FindDocumented(name);
  if (documented == nullptr) py::pybind11_fail(std::string("_core.pyi has no class ") + name);
  return documented->doc;
}

void CallThroughTwin(
    py::handle type, const char* name, const char* twin_name, size_t by_position,
    const std::vector<std::pair<const char*, py::object>>& arguments) {
  const py::dict members(type.attr("__dict__"));
  PyObject* const function = FunctionOf(members[name]);
  PyObject* const target = FunctionOf(members[twin_name]);
  if (function == nullptr || target == nullptr || arguments.size() > Twin::kMaxArguments)
    py::pybind11_fail(std::string("no twin of ") + name);
  twin.by_position = by_position;
  for (const auto& [argument, usual] : arguments) {
    twin.names.push_back(PyUnicode_InternFromString(argument));
    twin.defaults.push_back(py::object(usual).release().ptr());
  }
  twin.record = PyCFunction_GET_SELF(function);
  twin.target = PyCFunction_GET_SELF(target);
}

void DocumentCallables(py::module_& module, const char* prefix) {
  for (const auto& [key, value] : py::dict(module.attr("__dict__"))) {
    const std::string name = py::str(key);
    if (!PyType_Check(value.ptr())) {
      DocumentMember(prefix, name, value, {});
      continue;
    }
    if (!py::detail::get_type_info(reinterpret_cast<PyTypeObject*>(value.ptr()))) continue;
    for (const auto& [member_name, member] : py::dict(value.attr("__dict__")))
      DocumentMember(name + ".", py::str(member_name), member, value);
  }
}

}  // namespace vllm_router
