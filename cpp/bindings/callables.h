// Signatures and docstrings of the extension's functions, and errors that quote nothing of a request.
//
//     _core.pyi ──cmake/core_docs.py──▶ core_docs.inc ──▶ help(Router.select), inspect.signature(Router.select)
//                                                   └───▶ TypeError: Router.select() has no argument 'promt'; did you
//                                                         mean prompt?
//
// pybind11 reports a call that fits no overload with the repr() of every argument, so a misspelt
// keyword beside a body of 1 MB would be an exception of 1 MB with the prompt in it, and from there in a
// log. Here a wrapper calls pybind11's dispatcher, and writes another message when the call has failed.
//
// Cost: a call that succeeds costs one jump and one comparison more, about 1 ns; the rest is for errors
// only. With the GIL, at import and at errors.
//
//     PYBIND11_MODULE(_core, module) {
//       …                                 // all bindings
//       DocumentCallables(module);        // last
//     }
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <utility>
#include <vector>

namespace vllm_router {

// The docstring of a class in _core.pyi, after the signature of its constructor: the third argument of
// py::class_. REQUIRES: the class is in _core.pyi.
const char* ClassDoc(const char* name);

// Lets calls of a method with many arguments by name skip pybind11's search for each of them (70 ns per
// argument of the method). `twin` is the same method of the class under a private name, with all
// arguments by position; `arguments` are their names and defaults, of which the first `by_position` may
// be given by position. Errors, of a call that does not fit or raised by a twin, name `name`. Call it
// before DocumentCallables, for one method per process.
void CallThroughTwin(
    pybind11::handle type, const char* name, const char* twin, size_t by_position,
    const std::vector<std::pair<const char*, pybind11::object>>& arguments);

// Gives the functions, methods and properties of a module and of its classes their docstrings, and
// guards their calls. `prefix` is the module's name in _core.pyi with a dot, empty for `_core` itself.
void DocumentCallables(pybind11::module_& module, const char* prefix = "");

}  // namespace vllm_router
