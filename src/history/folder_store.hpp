// The steps of a history as files of one folder, on a local disk or on any POSIX file system.
//
// A step is one file. It is written under a temporary name, synced, renamed, and the folder synced:
// *the rename is the commit point*. There is no manifest, since the folder is one: whatever a
// second file said of a step would be true only as far as the step's own file agrees, and would
// cost each write another sync and rename. What a manifest is for stands in each file: a checksum
// of every chunk, and a sequence number, by which the step that was completed last is known.
//
// Invariants
// - A file that has a step's name was synced whole before it got that name. So a step file that
//   does not fit its checksums was damaged later, and is no remains of a crash.
// - Names change, and the folder is synced, under one mutex: a sync that fails is the failure of
//   the one change before it, and of no other.
// - What is offered is durable: opening syncs the folder before it offers anything, since the
//   process that renamed a file may have died before its own sync.
// - Sequence numbers grow in the order of the renames, past those of files that cannot be read.
// - Nothing is removed that is not known for ours by its name and its first bytes.
//
// Tests (tests/history): a simulated folder loses power behind every operation, and fails each in
// turn; processes are killed; every byte of a file is damaged; random operations are held beside an
// oracle.
#pragma once

#include <memory>
#include <string>

#include "history/folder.hpp"
#include "history/step_file.hpp"
#include "history/step_store.hpp"
#include "history/transfer.hpp"

namespace holdfast::history {

struct FolderOptions {
  // Lists and reads, beside a process that writes, too, and changes nothing. The steps are those of
  // the moment of opening; one that was removed since is not_found when it is read.
  bool read_only = false;
  // What the program calls the history, at most 127 bytes. Given to a new one; a history that has
  // another name is refused. Empty: any.
  std::string name;
};

// Opens the history in a folder, and for writing makes folder (not its parents) and history where
// there is none. One process has it open for writing. Throws not_found (for reading: no history),
// in_use, foreign (a folder with other files), newer_version, damaged (the file that says that this
// is a history), invalid_argument (another name than `options.name`), permission, no_space, io,
// unsupported (a file system whose locks do nothing); a folder that is refused is not changed.
//
// Memory for itself: what describes the steps, and while a step is moved 4 chunks of 4 MiB if the
// caller's memory is not page-aligned (or for verify()), otherwise 4 pages, and its tables: 128
// bytes a part, and 8 for every 4 MiB.
std::unique_ptr<StepStore> open_folder_store(const std::string& path,
                                             const FolderOptions& options = {});

// The same over a folder of another make, which exists.
std::unique_ptr<StepStore> open_folder_store(std::unique_ptr<Folder> folder,
                                             const FolderOptions& options,
                                             const TransferOptions& transfer);

}  // namespace holdfast::history
