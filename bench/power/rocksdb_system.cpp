// RocksDB by its C interface, whose library is loaded at run time: a machine that has a GPU may not
// let one install it. The settings are those of rocksdb_kvs.cpp.
#include <dlfcn.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "bench.hpp"
#include "system.hpp"

namespace power {
namespace {

// Its objects are handles to us.
struct Handle;
using Size = std::size_t;
using Flag = unsigned char;

struct Library {
  std::string version;
  Handle* (*options_create)();
  void (*options_destroy)(Handle*);
  void (*options_set_create_if_missing)(Handle*, Flag);
  void (*options_set_compression)(Handle*, int);
  void (*options_set_disable_auto_compactions)(Handle*, int);
  void (*options_set_write_buffer_size)(Handle*, Size);
  void (*options_set_max_total_wal_size)(Handle*, std::uint64_t);
  void (*options_set_allow_concurrent_memtable_write)(Handle*, Flag);
  void (*options_set_enable_pipelined_write)(Handle*, Flag);
  void (*options_set_memtable_vector_rep)(Handle*);
  Handle* (*open)(const Handle*, const char*, char**);
  void (*close)(Handle*);
  Handle* (*writeoptions_create)();
  void (*writeoptions_destroy)(Handle*);
  void (*writeoptions_set_sync)(Handle*, Flag);
  Handle* (*readoptions_create)();
  void (*readoptions_destroy)(Handle*);
  Handle* (*writebatch_create)();
  void (*writebatch_destroy)(Handle*);
  void (*writebatch_clear)(Handle*);
  void (*writebatch_put)(Handle*, const char*, Size, const char*, Size);
  void (*write)(Handle*, const Handle*, Handle*, char**);
  Handle* (*create_iterator)(Handle*, const Handle*);
  void (*iter_destroy)(Handle*);
  void (*iter_seek_to_first)(Handle*);
  Flag (*iter_valid)(const Handle*);
  void (*iter_next)(Handle*);
  const char* (*iter_key)(const Handle*, Size*);
  const char* (*iter_value)(const Handle*, Size*);
  void (*iter_get_error)(const Handle*, char**);
  void (*free)(void*);
};

std::unique_ptr<Library> library;

void* load(const std::string& path) {
  if (!path.empty()) return ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  for (const char* name : {"librocksdb.so", "librocksdb.so.7.8", "librocksdb.so.9.10",
                           "librocksdb.so.8.9", "librocksdb.so.6.11"}) {
    if (void* const found = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return found;
  }
  return nullptr;
}

// Throws with the name of what is not there.
template <class Function>
void find(void* handle, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(handle, name));
  if (function == nullptr) throw std::runtime_error(std::string("the library lacks ") + name);
}

std::string version_of(const void* symbol) {
  Dl_info info{};
  if (::dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return "unknown";
  std::error_code error;
  const auto file = std::filesystem::canonical(info.dli_fname, error);
  return error ? "unknown" : file.filename().string();
}

void find_all(void* handle, Library& found) {
#define HOLDFAST_FIND(name) find(handle, "rocksdb_" #name, found.name)
  HOLDFAST_FIND(options_create);
  HOLDFAST_FIND(options_destroy);
  HOLDFAST_FIND(options_set_create_if_missing);
  HOLDFAST_FIND(options_set_compression);
  HOLDFAST_FIND(options_set_disable_auto_compactions);
  HOLDFAST_FIND(options_set_write_buffer_size);
  HOLDFAST_FIND(options_set_max_total_wal_size);
  HOLDFAST_FIND(options_set_allow_concurrent_memtable_write);
  HOLDFAST_FIND(options_set_enable_pipelined_write);
  HOLDFAST_FIND(options_set_memtable_vector_rep);
  HOLDFAST_FIND(open);
  HOLDFAST_FIND(close);
  HOLDFAST_FIND(writeoptions_create);
  HOLDFAST_FIND(writeoptions_destroy);
  HOLDFAST_FIND(writeoptions_set_sync);
  HOLDFAST_FIND(readoptions_create);
  HOLDFAST_FIND(readoptions_destroy);
  HOLDFAST_FIND(writebatch_create);
  HOLDFAST_FIND(writebatch_destroy);
  HOLDFAST_FIND(writebatch_clear);
  HOLDFAST_FIND(writebatch_put);
  HOLDFAST_FIND(write);
  HOLDFAST_FIND(create_iterator);
  HOLDFAST_FIND(iter_destroy);
  HOLDFAST_FIND(iter_seek_to_first);
  HOLDFAST_FIND(iter_valid);
  HOLDFAST_FIND(iter_next);
  HOLDFAST_FIND(iter_key);
  HOLDFAST_FIND(iter_value);
  HOLDFAST_FIND(iter_get_error);
  HOLDFAST_FIND(free);
#undef HOLDFAST_FIND
  found.version = version_of(reinterpret_cast<const void*>(found.open));
}

// A handle that ends with its scope.
class Owned {
 public:
  Owned(Handle* handle, void (*end)(Handle*)) : handle_(handle), end_(end) {}
  ~Owned() { reset(); }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  void reset(Handle* handle = nullptr) {
    if (handle_ != nullptr) end_(handle_);
    handle_ = handle;
  }
  Handle* get() const { return handle_; }

 private:
  Handle* handle_;
  void (*end_)(Handle*);
};

void check(char* error) {
  if (error == nullptr) return;
  const std::string words = error;
  library->free(error);
  throw std::runtime_error("rocksdb: " + words);
}

// What a SET takes of the table in memory, with room to spare.
constexpr std::uint64_t kBytesOfSet = 160;

Promise promise_of(RocksDbForm form, unsigned writers) {
  Promise promise{"rocksdb",
                  "one WriteBatch",
                  "power",
                  "batches",
                  "a batch survives a power cut once it returned",
                  "replays the log"};
  if (form == RocksDbForm::vector_memtable) {
    promise.form += ", vector memtable";
    promise.guarantee += "; a lookup first sorts all that is not yet in files";
  }
  if (form == RocksDbForm::shares) {
    promise.form = "a WriteBatch for each of " + std::to_string(writers) + " writers";
    promise.atomic = "shares";
    promise.guarantee += "; of one that is cut off, some writers' shares may be there";
  }
  return promise;
}

class RocksDb : public System {
 public:
  RocksDb(const Setting& setting, RocksDbForm form)
      : shape_(setting.shape),
        sets_(setting.turns * setting.shape.batch),
        form_(form),
        writers_(form == RocksDbForm::shares ? setting.threads : 1),
        promise_(promise_of(form, writers_)),
        folder_(setting.folder + "/rocksdb-" + std::to_string(static_cast<int>(form))),
        team_(writers_),
        options_(library->options_create(), library->options_destroy),
        durable_(library->writeoptions_create(), library->writeoptions_destroy),
        database_(nullptr, library->close) {
    set_options();
    library->writeoptions_set_sync(durable_.get(), 1);
    std::filesystem::create_directory(folder_);
    for (unsigned i = 0; i < writers_; ++i) {
      batches_.push_back(
          std::make_unique<Owned>(library->writebatch_create(), library->writebatch_destroy));
    }
    open();
  }
  ~RocksDb() override {
    database_.reset();
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  RocksDb(const RocksDb&) = delete;
  RocksDb& operator=(const RocksDb&) = delete;

  const Promise& promise() const override { return promise_; }

  // A batch is what it takes to make a WriteBatch of it; a commit, to have that written and synced.
  // Of several writers, who do both at once, the whole is the commit.
  Turn run(const Inputs& inputs) override {
    const std::uint64_t before = log_bytes();
    Turn turn;
    if (writers_ == 1) {
      turn.batch_seconds = bench::seconds([&] { fill(0, inputs); });
      turn.commit_seconds = bench::seconds([&] { write(0); });
    } else {
      turn.commit_seconds = bench::seconds([&] {
        team_.for_chunks(writers_, 1, [&](unsigned, std::uint64_t writer, std::uint64_t) {
          fill(static_cast<unsigned>(writer), inputs);
          write(static_cast<unsigned>(writer));
        });
      });
    }
    turn.total_seconds = turn.batch_seconds + turn.commit_seconds;
    turn.disk_bytes = log_bytes() - before;
    return turn;
  }

  // Its log has been synced, and closing writes nothing more.
  void crash() override { database_.reset(); }

  Recovered recover(const Oracle& oracle) override {
    drop_from_cache(folder_);
    Recovered result;
    result.seconds = bench::seconds([&] { open(); });
    const Owned reading(library->readoptions_create(), library->readoptions_destroy);
    const Owned at(library->create_iterator(database_.get(), reading.get()), library->iter_destroy);
    Comparison comparison(oracle, promise_.system);
    for (library->iter_seek_to_first(at.get()); library->iter_valid(at.get()) != 0;
         library->iter_next(at.get())) {
      comparison.pair(word(library->iter_key, at.get()), word(library->iter_value, at.get()));
    }
    char* error = nullptr;
    library->iter_get_error(at.get(), &error);
    check(error);
    result.pairs = comparison.finish(Comparison::Losses::none);
    return result;
  }

  std::string io() const override { return "buffered"; }
  unsigned cpu_threads() const override { return writers_; }

 private:
  // Nothing but the log and the table in memory works while batches are timed.
  void set_options() {
    Handle* const to = options_.get();
    library->options_set_create_if_missing(to, 1);
    library->options_set_compression(to, 0);
    library->options_set_disable_auto_compactions(to, 1);
    library->options_set_write_buffer_size(
        to, std::max<std::uint64_t>(sets_ * kBytesOfSet, std::uint64_t{64} << 20));
    library->options_set_max_total_wal_size(to, std::uint64_t{1} << 40);
    const bool vector = form_ == RocksDbForm::vector_memtable;
    library->options_set_allow_concurrent_memtable_write(to, vector ? 0 : 1);
    library->options_set_enable_pipelined_write(to, 1);
    if (vector) library->options_set_memtable_vector_rep(to);
  }

  void open() {
    char* error = nullptr;
    database_.reset(library->open(options_.get(), folder_.c_str(), &error));
    check(error);
  }

  // A key is one writer's, so that the last SET of it stays, as in the other systems.
  void fill(unsigned writer, const Inputs& inputs) {
    Handle* const batch = batches_[writer]->get();
    library->writebatch_clear(batch);
    for (std::uint64_t i = 0; i < shape_.batch; ++i) {
      const std::uint64_t* const key = inputs.host_keys(0) + i;
      if (*key % writers_ != writer) continue;
      library->writebatch_put(batch, reinterpret_cast<const char*>(key), sizeof(*key),
                              reinterpret_cast<const char*>(inputs.host_values(0) + i),
                              sizeof(std::uint64_t));
    }
  }

  void write(unsigned writer) {
    char* error = nullptr;
    library->write(database_.get(), durable_.get(), batches_[writer]->get(), &error);
    check(error);
  }

  static std::uint64_t word(const char* (*get)(const Handle*, Size*), const Handle* at) {
    Size size = 0;
    const char* const bytes = get(at, &size);
    std::uint64_t result = 0;
    if (size != sizeof(result)) throw std::runtime_error("rocksdb: a key or value is cut short");
    std::memcpy(&result, bytes, sizeof(result));
    return result;
  }

  std::uint64_t log_bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      if (entry.path().extension() == ".log") bytes += entry.file_size();
    }
    return bytes;
  }

  Shape shape_;
  std::uint64_t sets_;
  RocksDbForm form_;
  unsigned writers_;
  Promise promise_;
  std::string folder_;
  Team team_;
  Owned options_, durable_;
  std::vector<std::unique_ptr<Owned>> batches_;
  Owned database_;
};

}  // namespace

std::string load_rocksdb(const std::string& path) {
  if (library) return {};
  void* const handle = load(path);
  if (handle == nullptr) {
    const char* const why = path.empty() ? nullptr : ::dlerror();
    return why != nullptr ? why : "no librocksdb.so is installed";
  }
  try {
    auto found = std::make_unique<Library>();
    find_all(handle, *found);
    library = std::move(found);
  } catch (const std::exception& error) {
    return error.what();
  }
  return {};
}

std::string rocksdb_version() { return library->version; }

void set_rocksdb_memory_aside(std::uint64_t sets) {
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, INT32_MAX);
  ::mallopt(M_ARENA_MAX, 1);
  const auto free = static_cast<std::uint64_t>(::sysconf(_SC_AVPHYS_PAGES)) *
                    static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t bytes = std::min(sets * kBytesOfSet, free / 4);
  const auto memory = std::make_unique<char[]>(bytes);
  volatile char* const touched = memory.get();
  for (std::uint64_t at = 0; at < bytes; at += kDiskPage) touched[at] = 1;
}

std::unique_ptr<System> make_rocksdb(const Setting& setting, RocksDbForm form) {
  return std::make_unique<RocksDb>(setting, form);
}

}  // namespace power
