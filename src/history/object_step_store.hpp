// The steps of a history as objects of an object store, under one prefix: the same bytes as the
// files of a folder, by the same names. docs/format.md ("In an object store").
//
// An object is there once it is whole: *the end of its upload is the commit point*. No name is
// changed, nothing is synced, and no upload that was cut short is ever listed. Bytes go out in
// their order, and the front, which has the checksums of all chunks, goes first: so they are found
// before the upload begins, and each chunk is held against them as it goes.
//
// Invariants
// - What is offered was listed by the store, and its front is whole.
// - Listing is not believed to be complete: a step is looked for before it is written.
// - Sequence numbers grow in the order in which writes begin; the engine begins one at a time.
// - Nothing is asked of the store under a mutex of ours.
// - What was taken over by another process is not written to (ObjectClaim).
//
// Memory for itself: for an upload what the store wants; for a step that is read as much as a
// folder's store wants, and five chunks where it is read in order.
//
// Tests: object_step_store_test over objects in memory, where every operation fails in turn,
// uploads are cut short, bytes flip and listings lag; tests/python/test_objects.py over obstore's
// own stores and a server of S3's protocol.
#pragma once

#include <chrono>
#include <memory>

#include "history/folder_store.hpp"
#include "history/step_store.hpp"
#include "history/transfer.hpp"
#include "holdfast/object_store.hpp"

namespace holdfast::history {

struct ObjectOptions {
  bool read_only = false;  // lists and reads, beside a process that writes, and changes nothing
  std::string name = {};   // as FolderOptions::name
  TransferOptions transfer = {.threads = 8};
  // How long a process may be silent before its claim to the place is over (ObjectClaim).
  std::chrono::milliseconds lease = std::chrono::seconds(60);
};

// Opens the history under a prefix, and makes it where there is none. Throws as
// open_folder_store(), and what the store throws: a bucket that is not there, credentials, the
// network.
std::unique_ptr<StepStore> open_object_step_store(std::shared_ptr<ObjectStore> objects,
                                                  const ObjectOptions& options = {});

}  // namespace holdfast::history
