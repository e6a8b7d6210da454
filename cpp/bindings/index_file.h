// Indexes with workers by name, as files and pickles: the common part of save(), load() and __reduce__
// of BlockCacheTracker and the prefix trees. All with the GIL, except during system calls.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"
#include "bindings/named_slots.h"
#include "index/index_image.h"

namespace vllm_router {

void WriteNames(const WorkerNames& names, ImageWriter* image);
StatusOr<WorkerNames> ReadNames(ImageReader* image);

// An index and its names, read from `image`. `source`: where it was read from, for the message.
template <typename Index>
std::pair<std::unique_ptr<Index>, WorkerNames> OpenIndex(
    IndexKind kind, std::string_view source, std::string_view image);
// The inverse.
template <typename Index>
std::string ImageOf(IndexKind kind, const WorkerNames& names, Index& index) {
  ImageWriter writer;
  WriteNames(names, &writer);
  index.Save(&writer);
  return SealIndexImage(kind, std::move(writer));
}

// OSError, IndexFileError, or ValueError for an image that is too large. `path`: str, bytes or
// os.PathLike.
void SaveFile(pybind11::handle path, std::string_view image);
std::string LoadFile(pybind11::handle path);
std::string FileSource(pybind11::handle path);

// save(), load(), _from_image() and __reduce__ of a class that has kKind, Image() and Open(source, image).
template <typename Index>
void BindImages(pybind11::class_<Index>* binding);

[[noreturn]] void ThrowBadIndex(std::string_view source, const Status& what);

template <typename Index>
StatusOr<std::pair<std::unique_ptr<Index>, WorkerNames>> TryOpenIndex(
    IndexKind kind, std::string_view image) {
  const StatusOr<std::string_view> payload = OpenIndexImage(kind, image);
  if (!payload.ok()) return payload.status();
  ImageReader reader(*payload);
  StatusOr<WorkerNames> names = ReadNames(&reader);
  if (!names.ok()) return names.status();
  StatusOr<std::unique_ptr<Index>> index = Index::Load(&reader);
  if (!index.ok()) return index.status();
  bool agree = names->size() == (*index)->slots();
  for (size_t place = 0; agree && place < names->size(); ++place) {
    agree = (*index)->Has(static_cast<WorkerSlot>(place)) != (*names)[place].is_none();
  }
  if (!agree) return absl::DataLossError("its names are not those of its workers");
  return std::pair(*std::move(index), *std::move(names));
}

template <typename Index>
std::pair<std::unique_ptr<Index>, WorkerNames> OpenIndex(
    IndexKind kind, std::string_view source, std::string_view image) {
  auto opened = TryOpenIndex<Index>(kind, image);
  if (!opened.ok()) ThrowBadIndex(source, opened.status());
  return *std::move(opened);
}

template <typename Index>
void BindImages(pybind11::class_<Index>* binding) {
  namespace py = pybind11;
  (*binding)
      .def(
          "save", [](Index& self, const py::object& path) { SaveFile(path, self.Image()); }, "To a file.",
          py::arg("path"))
      .def_static(
          "load", [](const py::object& path) { return Index::Open(FileSource(path), LoadFile(path)); },
          "From a file.", py::arg("path"))
      .def_static(
          "_from_image",
          [](const py::bytes& image) {
            return Index::Open(std::string("pickled ").append(IndexKindName(Index::kKind)), image);
          },
          "What a pickle holds.", py::arg("image"))
      .def("__reduce__", [](Index& self) {
        return py::make_tuple(
            py::module_::import("vllm_router._index_file").attr("restored"),
            py::make_tuple(py::type::of<Index>(), py::bytes(self.Image())));
      });
}

}  // namespace vllm_router
