// A WorkerSpec of Python as a WorkerDeclaration: each of its fields, by name. With the GIL.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <type_traits>
#include <vector>

#include "bindings/arguments.h"
#include "bindings/errors.h"
#include "worker/worker_declaration.h"

namespace vllm_router {

// "url" and the names of ForEachField(), in its order, as strings of Python. They are made once: to make one takes
// longer than to look the field up.
inline const std::vector<pybind11::object>& FieldNames() {
  static const auto* const kNames = [] {
    auto* const names = new std::vector<pybind11::object>;
    const auto add = [names](const char* name) {
      names->push_back(pybind11::reinterpret_steal<pybind11::object>(PyUnicode_InternFromString(name)));
    };
    add("url");
    WorkerDeclaration().ForEachField([&add](const char* name, const auto&) { add(name); });
    return names;
  }();
  return *kNames;
}

// None leaves the default.
template <typename T>
void ReadField(pybind11::handle spec, pybind11::handle name, T* member) {
  const pybind11::object value = spec.attr(name);
  if (value.is_none()) return;
  try {
    if constexpr (std::is_same_v<T, Stage>) {
      *member = StageByName(value.cast<std::string>()).value_or(Stage::kAll);
    } else {
      *member = value.cast<T>();
    }
  } catch (const pybind11::cast_error&) {
    throw pybind11::type_error(name.cast<std::string>() + " of a worker is " + Show(value));
  }
}

// ValueError for a URL that is none.
inline WorkerDeclaration ToDeclaration(pybind11::handle spec) {
  auto name = FieldNames().begin();
  std::string url;
  ReadField(spec, *name++, &url);
  WorkerDeclaration worker = ValueOrThrow(DeclareWorker(url));
  worker.ForEachField([&](const char*, auto& member) { ReadField(spec, *name++, &member); });
  return worker;
}

}  // namespace vllm_router
