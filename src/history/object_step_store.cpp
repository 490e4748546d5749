#include "history/object_step_store.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <exception>
#include <future>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/checksum.hpp"
#include "core/parallel.hpp"
#include "history/object_claim.hpp"
#include "history/step_file_store.hpp"

namespace holdfast::history {

using detail::concat;

namespace {

// Opening asks for the front of every step, and a store answers after tens of milliseconds.
constexpr unsigned kOpeningThreads = 16;
// Chunks that are asked for before they are wanted.
constexpr std::size_t kPiecesAhead = 4;
constexpr std::chrono::seconds kAnewAgainAfter{2};

const char* remedy_of(Errc code) {
  switch (code) {
    case Errc::permission:
      return "; check the credentials, and what they may do there";
    case Errc::not_found:
      return "; check that the bucket is there";
    case Errc::io:
      return "; check the store's address and the network, or try again";
    default:
      return "";
  }
}

// Says of what a request throws what it was for.
template <class Request>
auto asking(const std::string& action, Request&& request) {
  try {
    return request();
  } catch (const Error& error) {
    if (error.code() == Errc::no_memory || error.code() == Errc::unsupported) throw;
    throw Error(error.code(),
                concat("cannot ", action, ": ", error.what(), remedy_of(error.code())));
  }
}

// The objects of another, whose errors say what was asked.
class NamedStore : public ObjectStore {
 public:
  explicit NamedStore(std::shared_ptr<ObjectStore> inner) : inner_(std::move(inner)) {}

  void put(const std::string& key, std::uint64_t bytes, const Source& source) override {
    // What the source throws is not the store's.
    std::exception_ptr of_source;
    const Source kept = [&](std::span<std::byte> part) {
      try {
        source(part);
      } catch (...) {
        of_source = std::current_exception();
        throw;
      }
    };
    try {
      asking(concat("write '", path_of(key), "'"), [&] { inner_->put(key, bytes, kept); });
    } catch (...) {
      if (of_source) std::rethrow_exception(of_source);
      throw;
    }
  }
  bool put_new(const std::string& key, std::span<const std::byte> bytes) override {
    return asking(concat("write '", path_of(key), "'"),
                  [&] { return inner_->put_new(key, bytes); });
  }
  std::size_t read(const std::string& key, std::uint64_t offset,
                   std::span<std::byte> into) override {
    try {
      return asking(concat("read '", path_of(key), "'"),
                    [&] { return inner_->read(key, offset, into); });
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;
      throw Error(Errc::not_found, concat("'", path_of(key), "' is not there (any longer)"));
    }
  }
  std::optional<StoredObject> head(const std::string& key) override {
    return asking(concat("look for '", path_of(key), "'"), [&] { return inner_->head(key); });
  }
  std::vector<StoredObject> list() override {
    return asking(concat("list '", path(), "'"), [&] { return inner_->list(); });
  }
  void remove(const std::string& key) override {
    asking(concat("remove '", path_of(key), "'"), [&] { inner_->remove(key); });
  }
  bool is_lost() const override { return inner_->is_lost(); }
  void confirm() override {
    asking(concat("look for what is in '", path(), "'"), [&] { inner_->confirm(); });
  }
  std::shared_ptr<void> claim() override {
    return asking(concat("write to '", path(), "'"), [&] { return inner_->claim(); });
  }
  const std::string& path() const override { return inner_->path(); }

 private:
  std::string path_of(const std::string& key) const { return path() + "/" + key; }
  const std::shared_ptr<ObjectStore> inner_;
};

// For reading. A store answers each request after a while, so what is read in order is asked for
// ahead.
class ObjectFile : public FolderFile {
 public:
  ObjectFile(ObjectStore& objects, StoredObject info) : objects_(objects), info_(std::move(info)) {}

  std::int64_t read(void* to, std::size_t bytes, std::uint64_t offset) override {
    if (offset >= info_.bytes) return 0;
    bytes = std::min<std::uint64_t>(bytes, info_.bytes - offset);
    while (!ahead_.empty() && ahead_.front().offset < offset) ahead_.pop_front();
    std::size_t got = 0;
    if (!ahead_.empty() && ahead_.front().offset == offset) {
      std::future<std::vector<std::byte>> asked = std::move(ahead_.front().bytes);
      ahead_.pop_front();
      const std::vector<std::byte> piece = asked.get();
      got = std::min(bytes, piece.size());
      std::memcpy(to, piece.data(), got);
    } else {
      ahead_.clear();
      got = objects_.read(info_.key, offset, {static_cast<std::byte*>(to), bytes});
      next_ = offset + bytes;
    }
    // The pages of a header are no part of what comes in order.
    if (bytes == piece_bytes_) ask_ahead();
    return static_cast<std::int64_t>(std::min(got, bytes));
  }
  void expect_reads_in_order(std::size_t bytes) override { piece_bytes_ = bytes; }
  std::int64_t size() override { return static_cast<std::int64_t>(info_.bytes); }
  std::int64_t write(const void*, std::size_t, std::uint64_t) override { return -EROFS; }
  int reserve(std::uint64_t) override { return EROFS; }
  int sync() override { return EROFS; }

 private:
  struct Piece {
    std::uint64_t offset;
    std::future<std::vector<std::byte>> bytes;  // waits for its end when it goes
  };

  void ask_ahead() {
    for (; ahead_.size() < kPiecesAhead && next_ < info_.bytes; next_ += piece_bytes_) {
      const auto ask = [this, offset = next_] {
        std::vector<std::byte> piece(std::min<std::uint64_t>(piece_bytes_, info_.bytes - offset));
        piece.resize(objects_.read(info_.key, offset, piece));
        return piece;
      };
      ahead_.push_back({next_, std::async(std::launch::async, ask)});
    }
  }

  ObjectStore& objects_;
  const StoredObject info_;
  std::size_t piece_bytes_ = 0;  // 0: reads come from anywhere, by several threads
  std::uint64_t next_ = 0;       // of what was asked for
  std::deque<Piece> ahead_;
};

// That a pace gave up, on its way through an upload.
struct GaveUp : std::exception {};

// The bytes of a step's object in their order: the front, the blob, and zeroes up to a whole page.
class StepBytes {
 public:
  // `next` gives the bytes of a chunk.
  using Next = std::function<std::span<const std::byte>(std::uint64_t chunk)>;
  StepBytes(const Front& front, Next next, const StepStore::Pace& pace)
      : front_(front),
        next_(std::move(next)),
        pace_(pace),
        head_(encode(front)),
        now_(head_.span()) {}

  bool all_given() const { return given_ == front_.file_bytes(); }

  void fill(std::span<std::byte> part) {
    while (!part.empty()) {
      if (now_.empty()) go_on();
      const std::size_t bytes = std::min(part.size(), now_.size());
      std::memcpy(part.data(), now_.data(), bytes);
      now_ = now_.subspan(bytes);
      part = part.subspan(bytes);
      given_ += bytes;
    }
  }

 private:
  void go_on() {
    if (pace_ && !pace_(given_ - std::min(given_, front_.front_bytes()))) throw GaveUp{};
    if (chunk_ < front_.chunks()) {
      now_ = next_(chunk_);
      // Memory that has changed since its checksum was taken, or a bit of it.
      if (core::hash_bytes(now_.data(), now_.size()) != front_.hashes[chunk_]) {
        throw Error(Errc::io, concat(front_.describe(chunk_), " of step ", front_.info.step,
                                     " changed while it was read; nothing was written"));
      }
      ++chunk_;
      return;
    }
    static constexpr std::byte kZeroes[kAlignment] = {};
    const std::uint64_t left = front_.file_bytes() - given_;
    if (left == 0) {
      throw Error(Errc::io,
                  concat("more bytes were asked for than step ", front_.info.step, " has"));
    }
    now_ = std::span(kZeroes).first(std::min<std::uint64_t>(left, kAlignment));
  }

  const Front& front_;
  const Next next_;
  const StepStore::Pace& pace_;
  const AlignedBytes head_;
  std::span<const std::byte> now_;
  std::uint64_t chunk_ = 0, given_ = 0;
};

class ObjectStepStore : public StepFileStore {
 public:
  ObjectStepStore(std::shared_ptr<ObjectStore> objects, const ObjectOptions& options);

  void remove(Step step) override;
  bool is_lost() const override { return objects_.is_lost() && !begins_anew_; }
  void begin_anew() override {
    forget_all();
    begins_anew_ = true;
  }
  void confirm() override {
    if (!read_only_ && !begins_anew_) objects_.confirm();
  }
  const std::string& path() const override { return objects_.path(); }

 private:
  Folder::Opened open_file(const std::string& name) const override;
  bool write_file(Front& front, const Blob& blob, const Pace& pace) override;
  bool is_of_file(const Error& error) const override {
    return error.code() != Errc::io && error.code() != Errc::not_found;
  }

  void make_history(const HistoryHeader& header);
  void make_anew();
  void try_to_make_anew();
  void remove_remains(const std::vector<StoredObject>& all);
  void scan(const std::vector<StoredObject>& all);
  bool is_there_unlisted(const Front& front);
  bool hash(Front& front, const Blob& blob, const Pace& pace) const;
  bool upload(const Front& front, const Blob& blob, const Pace& pace);
  std::span<const std::byte> chunk_of(const Front& front, const Blob& blob,
                                      std::uint64_t chunk) const;

  mutable NamedStore objects_;
  std::mutex sequence_;  // over take_sequence()
  std::atomic<bool> begins_anew_ = false;
  std::mutex anew_;  // over make_anew(), and these
  std::optional<Error> why_not_anew_;
  std::chrono::steady_clock::time_point not_anew_until_{};
  // One of these where something may be written.
  std::shared_ptr<void> stores_claim_;
  std::optional<ObjectClaim> claim_;
};

// ---- Opening ------------------------------------------------------------------------------------

ObjectStepStore::ObjectStepStore(std::shared_ptr<ObjectStore> objects, const ObjectOptions& options)
    : StepFileStore(options.read_only, options.name, options.transfer),
      objects_(std::move(objects)) {
  // Looked for by its key, since a listing may lag.
  if (const Folder::Opened opened = open_file(kHistoryFile); opened.file) {
    load_header(opened);
    check_name(options.name);
  } else if (read_only_) {
    throw Error(Errc::not_found,
                concat("there is no history in '", path(),
                       "'; check the address, or open it for writing to make one"));
  } else {
    for (const StoredObject& object : objects_.list()) {
      if (object.key != kLockFile && !is_temporary_name(object.key)) refuse_other_file(object.key);
    }
  }
  if (!read_only_) {
    stores_claim_ = objects_.claim();
    if (!stores_claim_) claim_.emplace(objects_, options.lease);
    if (!objects_.head(kHistoryFile)) make_history(make_history_header(options.name));
    load_header(open_file(kHistoryFile));
    check_name(options.name);
  }
  const std::vector<StoredObject> all = objects_.list();
  if (!read_only_) remove_remains(all);
  scan(all);
}

// Unless there is one.
void ObjectStepStore::make_history(const HistoryHeader& header) {
  const auto bytes = std::as_bytes(std::span(&header, 1));
  try {
    objects_.put_new(kHistoryFile, bytes);
    return;
  } catch (const Error& error) {
    if (error.code() != Errc::unsupported) throw;
  }
  objects_.put(kHistoryFile, bytes.size(),
               [&, at = std::size_t{0}](std::span<std::byte> part) mutable {
                 std::memcpy(part.data(), bytes.data() + at, part.size());
                 at += part.size();
               });
}

// Behind the loss of everything. Where it cannot be, a claim may have waited for that: a thousand
// checkpoints that are to be written do not wait for it a thousand times.
void ObjectStepStore::make_anew() {
  const std::lock_guard lock(anew_);
  if (!begins_anew_) return;
  if (std::chrono::steady_clock::now() < not_anew_until_) throw Error(*why_not_anew_);
  try {
    try_to_make_anew();
  } catch (const Error& error) {
    why_not_anew_ = error;
    not_anew_until_ = std::chrono::steady_clock::now() + kAnewAgainAfter;
    throw;
  }
  begins_anew_ = false;
}

// Others may have come to be there meanwhile, as in any empty place.
void ObjectStepStore::try_to_make_anew() {
  stores_claim_ = nullptr;
  stores_claim_ = objects_.claim();
  if (const Folder::Opened opened = open_file(kHistoryFile); opened.file) {
    if (read_history_header(*opened.file, path_of(kHistoryFile)).uuid != header_.uuid) {
      throw Error(Errc::in_use, concat("what '", path(),
                                       "' had is gone, and another history is there now: open this "
                                       "one again with another name"));
    }
  } else {
    for (const StoredObject& object : objects_.list()) refuse_other_file(object.key);
    make_history(header_);
  }
}

// By which a process has asked what time it is, and died.
void ObjectStepStore::remove_remains(const std::vector<StoredObject>& all) {
  for (const StoredObject& object : all) {
    if (is_temporary_name(object.key) && object.bytes == 0) objects_.remove(object.key);
  }
}

// A store that cannot be reached now says nothing about its steps: then opening fails.
void ObjectStepStore::scan(const std::vector<StoredObject>& all) {
  core::parallel_for(all.size(), kOpeningThreads, [&](std::size_t i) {
    const std::optional<Step> step = step_of_file_name(all[i].key);
    if (!step) return;
    const Folder::Opened opened{std::make_unique<ObjectFile>(objects_, all[i]), 0};
    try {
      scan_step(*step, all[i].key, opened);
    } catch (const Error& error) {
      if (error.code() != Errc::not_found) throw;  // listed late, or removed since
    }
  });
  begin_sequence();
}

Folder::Opened ObjectStepStore::open_file(const std::string& name) const {
  std::optional<StoredObject> info = objects_.head(name);
  if (!info) return {nullptr, ENOENT};
  return {std::make_unique<ObjectFile>(objects_, std::move(*info)), 0};
}

// ---- Writing ------------------------------------------------------------------------------------

std::span<const std::byte> ObjectStepStore::chunk_of(const Front& front, const Blob& blob,
                                                     std::uint64_t chunk) const {
  const std::uint64_t begin = front.begin_of(chunk), bytes = front.bytes_of(chunk);
  return blob.fill != nullptr ? (*blob.fill)(begin, bytes) : blob.bytes.subspan(begin, bytes);
}

// False: the pace gave up.
bool ObjectStepStore::hash(Front& front, const Blob& blob, const Pace& pace) const {
  if (blob.hashes.chunk_bytes == front.chunk_bytes && blob.hashes.hashes.size() == front.chunks()) {
    front.hashes.assign(blob.hashes.hashes.begin(), blob.hashes.hashes.end());
    return true;
  }
  front.hashes.assign(front.chunks(), 0);
  const auto hash_chunk = [&](std::uint64_t chunk) {
    const std::span<const std::byte> bytes = chunk_of(front, blob, chunk);
    front.hashes[chunk] = core::hash_bytes(bytes.data(), bytes.size());
  };
  if (blob.fill == nullptr) {
    core::parallel_for(front.chunks(), transfer_.threads, hash_chunk);
    return true;
  }
  for (std::uint64_t chunk = 0; chunk < front.chunks(); ++chunk) {
    if (pace && !pace(0)) return false;
    hash_chunk(chunk);
  }
  return true;
}

// Whether the store has this step, of which its listing did not know: an upload, perhaps, whose
// answer was lost. Throws already_exists if it has another one, which remove() then removes.
bool ObjectStepStore::is_there_unlisted(const Front& front) {
  const Step step = front.info.step;
  const std::string key = step_file_name(step);
  const Folder::Opened opened = open_file(key);
  if (!opened.file) return false;
  scan_step(step, key, opened);
  const std::optional<StepInfo> found = find(step);
  if (found && *found == front.info) return true;
  throw Error(Errc::already_exists,
              concat("'", path_of(key),
                     "' is there, and the store had not listed it; remove it, or "
                     "save another number"));
}

bool ObjectStepStore::write_file(Front& front, const Blob& blob, const Pace& pace) {
  if (begins_anew_) make_anew();
  if (claim_) claim_->check();
  if (is_there_unlisted(front)) return true;
  if (!hash(front, blob, pace)) return false;
  {
    const std::lock_guard lock(sequence_);
    front.sequence = take_sequence();
  }
  return upload(front, blob, pace);
}

bool ObjectStepStore::upload(const Front& front, const Blob& blob, const Pace& pace) {
  const std::string key = step_file_name(front.info.step);
  StepBytes bytes(
      front, [&](std::uint64_t chunk) { return chunk_of(front, blob, chunk); }, pace);
  try {
    objects_.put(key, front.file_bytes(), [&](std::span<std::byte> part) { bytes.fill(part); });
    return true;
  } catch (const GaveUp&) {
    return false;
  } catch (...) {
    if (!bytes.all_given()) throw;  // then it cannot have ended
    const std::exception_ptr error = std::current_exception();
    // The store may have it whole, and its answer was lost. It goes again; should it stay all the
    // same, it is the whole step.
    try {
      objects_.remove(key);
    } catch (const Error& failed) {
      note_leftover(front.info.step, failed);
    }
    std::rethrow_exception(error);
  }
}

void ObjectStepStore::remove(Step step) {
  check_usable("remove", true);
  refuse_to_remove(step);
  if (claim_) claim_->check();
  objects_.remove(step_file_name(step));
  forget(step);
}

}  // namespace

std::unique_ptr<StepStore> open_object_step_store(std::shared_ptr<ObjectStore> objects,
                                                  const ObjectOptions& options) {
  if (!objects) throw Error(Errc::invalid_argument, "no object store was given: it is null");
  return std::make_unique<ObjectStepStore>(std::move(objects), options);
}

}  // namespace holdfast::history
