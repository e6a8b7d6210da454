#include "peer_sync/snapshot.h"

#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_map.h>

#include "base/limits.h"
#include "index/index_image.h"
#include "peer_sync/seal.h"

namespace vllm_router {
namespace {

constexpr std::string_view kSnapshotMagic = "VRS1";
constexpr size_t kSnapshotHeadBytes = 40;
constexpr uint32_t kSnapshotSealed = 1;

struct Name {
  std::string_view url;  // empty: the slot has no worker
  uint64_t incarnation = 0;
};

StatusOr<std::vector<Name>> ReadNames(ImageReader* image) {
  const uint64_t slots = image->Count(1);
  if (slots > kMaxWorkers) return BadImage("it has ", slots, " workers; at most ", kMaxWorkers, " are read");
  std::vector<Name> names(slots);
  for (Name& name : names) {
    if (image->Number<uint8_t>() == 0) continue;
    name.incarnation = image->Number<uint64_t>();
    name.url = image->Text();
  }
  if (!image->ok()) return BadImage("the names of its workers go beyond its end");
  return names;
}

using WorkersByUrl = absl::flat_hash_map<std::string_view, const Worker*>;

const Worker* Find(const Name& name, const WorkersByUrl& workers) {
  const auto found = workers.find(name.url);
  if (found == workers.end()) return nullptr;
  return found->second->MayBe(name.incarnation) ? found->second : nullptr;
}

}  // namespace

bool WriteSnapshot(
    const SnapshotHead& head, std::string_view secret, const FleetView& fleet, KvIndex* index,
    std::string* bytes) {
  ImageWriter body;
  body.Number(head.fingerprint);
  body.Number(head.router);
  body.Number(head.number);
  body.Number(head.taken_ms);
  if (!index->SaveStrides(fleet, &body)) return false;
  const uint32_t flags = secret.empty() ? 0 : kSnapshotSealed;
  bytes->assign(kSnapshotMagic);
  bytes->append(reinterpret_cast<const char*>(&flags), sizeof(flags));
  bytes->append(body.written());
  if (!secret.empty())
    AeadSeal(SealKey(secret, kSnapshotMagic, head.router), head.number, kSnapshotHeadBytes, bytes);
  return true;
}

StatusOr<SnapshotHead> ReadSnapshot(
    std::string_view bytes, std::string_view secret, uint64_t fingerprint, const FleetView& fleet,
    KvIndex* index) {
  if (bytes.size() < kSnapshotHeadBytes || !bytes.starts_with(kSnapshotMagic))
    return BadImage("it begins like no snapshot (VRS1) of a router");
  ImageReader reader(bytes.substr(kSnapshotMagic.size()));
  const auto flags = reader.Number<uint32_t>();
  SnapshotHead head;
  head.fingerprint = reader.Number<uint64_t>();
  head.router = reader.Number<uint64_t>();
  head.number = reader.Number<uint64_t>();
  head.taken_ms = reader.Number<uint64_t>();
  const bool sealed = (flags & kSnapshotSealed) != 0;
  ROUTER_RETURN_IF_ERROR(CheckSealed("snapshot", sealed, secret));
  std::string opened;
  if (sealed) {
    const StatusOr<std::string_view> plain = Unsealed(
        "snapshot", SealKey(secret, kSnapshotMagic, head.router), head.number, kSnapshotHeadBytes, bytes,
        &opened);
    if (!plain.ok()) return plain.status();
    bytes = *plain;
  }
  if (head.fingerprint != fingerprint) {
    return absl::FailedPreconditionError(
        "the snapshot is of a router with another block size, stride or hash than this one's");
  }
  reader = ImageReader(bytes.substr(kSnapshotHeadBytes));
  StatusOr<std::vector<Name>> names = ReadNames(&reader);
  if (!names.ok()) return names.status();
  StatusOr<std::unique_ptr<BlockCacheTracker>> saved = BlockCacheTracker::Load(&reader);
  if (!saved.ok()) return saved.status();
  WorkersByUrl workers;
  for (const FleetView::Member& member : fleet.members())
    workers[member.worker->url.url] = member.worker.get();
  for (size_t slot = 0; slot < names->size(); ++slot) {
    if (const Worker* const worker = Find((*names)[slot], workers))
      index->AdoptStrides(worker->id, **saved, static_cast<WorkerSlot>(slot));
  }
  return head;
}

}  // namespace vllm_router
