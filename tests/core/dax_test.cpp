#include "core/dax.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "core/fake_sysfs.hpp"
#include "support/error_of.hpp"
#include "support/still_fork.hpp"

// libpmem2 1.12 loses 144 bytes with every mapping that it is told of (pmem/pmdk issue 5637).
extern "C" [[gnu::visibility("default")]] const char* __lsan_default_suppressions();
extern "C" const char* __lsan_default_suppressions() { return "leak:libpmem2\n"; }

namespace holdfast::core {
namespace {

namespace fs = std::filesystem;
using test::error_of;

constexpr std::uint64_t kBytes = 1 << 20;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class DaxTest : public ::testing::Test {
 protected:
  DaxTest() {
    ::unsetenv("HOLDFAST_DAX_PLAIN_FILE");
    std::string form = (fs::temp_directory_path() / "holdfast-dax-XXXXXX").string();
    folder = ::mkdtemp(form.data());
    path = folder + "/device";
    plain.allow_plain_file = true;
  }
  ~DaxTest() override {
    ::unsetenv("HOLDFAST_DAX_PLAIN_FILE");
    std::error_code error;
    fs::remove_all(folder, error);
  }
  void make_plain(std::uint64_t bytes = kBytes) {
    DaxMapping mapping = DaxMapping::create(path, bytes, plain);
    mapping.publish();
  }
  std::size_t entries() const {
    return static_cast<std::size_t>(
        std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  std::string folder, path;
  DaxOptions plain;
};

// Runs `body` in a child, which tells by a byte when it is done and then waits to be killed.
class Child {
 public:
  explicit Child(const std::function<void()>& body) {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    pid_ = test::fork_when_still();
    if (pid_ == 0) {
      ::close(ends[0]);
      char result = 'y';
      try {
        body();
      } catch (...) {
        result = 'n';
      }
      const ssize_t told = ::write(ends[1], &result, 1);
      while (told == 1) ::pause();
      ::_exit(1);
    }
    ::close(ends[1]);
    EXPECT_EQ(::read(ends[0], &result_, 1), 1);
    ::close(ends[0]);
  }
  ~Child() { kill(); }
  char result() const { return result_; }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_ = -1;
  char result_ = 0;
};

TEST_F(DaxTest, WritesSurviveAKillAndTheLockDoesNot) {
  make_plain();
  Child child([&] {
    static DaxMapping mapping = DaxMapping::open(path, plain);
    std::strcpy(static_cast<char*>(mapping.address()) + 5000, "still here");
  });
  ASSERT_EQ(child.result(), 'y');
  EXPECT_EQ(error_of([&] { DaxMapping::open(path, plain); }, {path}), Errc::in_use);
  child.kill();
  const DaxMapping mapping = DaxMapping::open(path, plain);
  EXPECT_STREQ(static_cast<char*>(mapping.address()) + 5000, "still here");
}

TEST_F(DaxTest, ASecondOpeningInTheSameProcessIsRefused) {
  make_plain();
  const DaxMapping first = DaxMapping::open(path, plain);
  EXPECT_EQ(error_of([&] { DaxMapping::open(path, plain); }), Errc::in_use);
}

TEST_F(DaxTest, PlainFilesNeedTheSwitch) {
  make_plain();
  EXPECT_EQ(error_of([&] { DaxMapping::open(path); }, {"not DAX", "Domain::file"}),
            Errc::unsupported);
  EXPECT_EQ(error_of([&] { DaxMapping::create(folder + "/new", kBytes); }), Errc::unsupported);
  EXPECT_EQ(entries(), 1u) << "a refused creation left something behind";
  ::setenv("HOLDFAST_DAX_PLAIN_FILE", "0", 1);
  EXPECT_EQ(error_of([&] { DaxMapping::open(path); }), Errc::unsupported);
  ::setenv("HOLDFAST_DAX_PLAIN_FILE", "1", 1);
  EXPECT_EQ(DaxMapping::open(path).kind(), DaxKind::plain_file);
}

TEST_F(DaxTest, SharedMemoryIsNotDaxEither) {
  const std::string shared = "/dev/shm/holdfast-dax-test-" + std::to_string(::getpid());
  std::ofstream(shared) << std::string(4096, 'x');
  fs::permissions(shared, fs::perms::owner_read | fs::perms::owner_write);
  EXPECT_EQ(error_of([&] { DaxMapping::open(shared); }), Errc::unsupported);
  fs::remove(shared);
}

TEST_F(DaxTest, CreatedFileHasNoNameUntilItIsPublished) {
  {
    const DaxMapping mapping = DaxMapping::create(path, kBytes, plain);
    EXPECT_FALSE(fs::exists(path));
  }
  EXPECT_EQ(entries(), 0u);
  DaxMapping mapping = DaxMapping::create(path, kBytes - 1, plain);
  EXPECT_EQ(mapping.bytes(), kBytes);
  std::memset(mapping.address(), 'a', kBytes);
  mapping.publish();
  mapping.publish();
  EXPECT_EQ(fs::file_size(path), kBytes);
  EXPECT_EQ(error_of([&] { DaxMapping::open(path, plain); }), Errc::in_use);
  EXPECT_EQ(error_of([&] { DaxMapping::create(path, kBytes, plain); }), Errc::already_exists);
}

TEST_F(DaxTest, TwoCreationsRaceForTheName) {
  DaxMapping first = DaxMapping::create(path, kBytes, plain);
  DaxMapping second = DaxMapping::create(path, kBytes, plain);
  second.publish();
  EXPECT_EQ(error_of([&] { first.publish(); }), Errc::already_exists);
}

TEST_F(DaxTest, FlushReachesTheFile) {
  make_plain();
  const DaxMapping mapping = DaxMapping::open(path, plain);
  auto* bytes = static_cast<char*>(mapping.address());
  std::memcpy(bytes + 4090, "0123456789", 10);  // across a page boundary
  mapping.flush(bytes + 4090, 10);
  mapping.flush(bytes, 0);
  mapping.flush(bytes, mapping.bytes());
  std::ifstream file(path, std::ios::binary);
  file.seekg(4090);
  char read[10];
  file.read(read, 10);
  EXPECT_EQ(std::memcmp(read, "0123456789", 10), 0);
}

TEST_F(DaxTest, FlushOutsideIsRefused) {
  make_plain();
  const DaxMapping mapping = DaxMapping::open(path, plain);
  auto* bytes = static_cast<char*>(mapping.address());
  const int elsewhere = 0;
  EXPECT_EQ(error_of([&] { mapping.flush(&elsewhere, 4); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { mapping.flush(bytes + kBytes - 1, 2); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { mapping.flush(bytes + 1, SIZE_MAX); }), Errc::invalid_argument);
}

TEST_F(DaxTest, GrowsInPlace) {
  plain.max_bytes = 8 * kBytes;
  make_plain();
  DaxMapping mapping = DaxMapping::open(path, plain);
  auto* bytes = static_cast<char*>(mapping.address());
  bytes[kBytes - 1] = 'x';
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(bytes) % (2 << 20), 0u);
  mapping.grow(4 * kBytes);
  EXPECT_EQ(mapping.address(), bytes);
  EXPECT_EQ(mapping.bytes(), 4 * kBytes);
  EXPECT_EQ(bytes[kBytes - 1], 'x');
  EXPECT_EQ(bytes[4 * kBytes - 1], 0);
  bytes[4 * kBytes - 1] = 'y';
  mapping.flush(bytes, mapping.bytes());
  mapping.grow(kBytes);  // smaller: nothing to do
  EXPECT_EQ(mapping.bytes(), 4 * kBytes);
  EXPECT_EQ(error_of([&] { mapping.grow(9 * kBytes); }), Errc::invalid_argument);
  EXPECT_EQ(fs::file_size(path), 4 * kBytes);
}

TEST_F(DaxTest, FileSizeLimitIsAnErrorAndNoSignal) {
  plain.max_bytes = 8 * kBytes;
  make_plain();
  DaxMapping mapping = DaxMapping::open(path, plain);
  struct rlimit before {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  struct rlimit tight = before;
  tight.rlim_cur = 2 * kBytes;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  EXPECT_EQ(error_of([&] { mapping.grow(4 * kBytes); }), Errc::no_space);
  EXPECT_EQ(error_of([&] { DaxMapping::create(folder + "/b", 4 * kBytes, plain); }),
            Errc::no_space);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_EQ(mapping.bytes(), kBytes);
  static_cast<char*>(mapping.address())[kBytes - 1] = 'z';
}

TEST_F(DaxTest, MoveKeepsTheMapping) {
  make_plain();
  DaxMapping first = DaxMapping::open(path, plain);
  void* address = first.address();
  const DaxMapping second = std::move(first);
  EXPECT_EQ(second.address(), address);
  static_cast<char*>(second.address())[0] = 'm';
  second.flush(second.address(), 1);
}

TEST_F(DaxTest, TruncatedOrEmptyFileIsDamaged) {
  make_plain();
  plain.min_bytes = kBytes;
  EXPECT_EQ(DaxMapping::open(path, plain).bytes(), kBytes);
  for (const std::uint64_t bytes :
       {kBytes - 4096, kBytes - 1, std::uint64_t{1}, std::uint64_t{0}}) {
    fs::resize_file(path, bytes);
    EXPECT_EQ(error_of([&] { DaxMapping::open(path, plain); }), Errc::damaged) << bytes;
  }
  plain.min_bytes = 0;
  EXPECT_EQ(error_of([&] { DaxMapping::open(path, plain); }), Errc::damaged);
}

TEST_F(DaxTest, ThingsThatAreNoFile) {
  EXPECT_EQ(error_of([&] { DaxMapping::open(folder, plain); }), Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { DaxMapping::open(folder + "/none", plain); }), Errc::not_found);
  EXPECT_EQ(error_of([&] { DaxMapping::open("", plain); }), Errc::not_found);
  ASSERT_EQ(::mkfifo((folder + "/fifo").c_str(), 0600), 0);
  EXPECT_EQ(error_of([&] { DaxMapping::open(folder + "/fifo", plain); }), Errc::invalid_argument);
  make_plain();
  fs::create_symlink(path, folder + "/link");
  EXPECT_EQ(error_of([&] { DaxMapping::open(folder + "/link", plain); }), Errc::permission);
  fs::create_symlink(folder + "/nowhere", folder + "/dangling");
  EXPECT_EQ(error_of([&] { DaxMapping::open(folder + "/dangling", plain); }), Errc::permission);
  for (const char* name : {"/fifo", "/link", "/dangling", ""})
    EXPECT_EQ(error_of([&] { DaxMapping::create(folder + name, kBytes, plain); }),
              Errc::already_exists)
        << name;
  EXPECT_EQ(error_of([&] { DaxMapping::create(folder + "/no/such", kBytes, plain); }),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { DaxMapping::create("/dev/dax97.0", kBytes, plain); }), Errc::not_found);
  for (const std::uint64_t bytes : {std::uint64_t{0}, UINT64_MAX})
    EXPECT_EQ(error_of([&] { DaxMapping::create(folder + "/b", bytes, plain); }),
              Errc::invalid_argument);
}

TEST_F(DaxTest, FileOfOthersIsRefused) {
  make_plain();
  fs::permissions(path, fs::perms::others_write, fs::perm_options::add);
  EXPECT_EQ(error_of([&] { DaxMapping::open(path, plain); }), Errc::permission);
  fs::permissions(path, fs::perms::others_write, fs::perm_options::remove);
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(path.c_str(), 65534, 65534), 0);
  EXPECT_EQ(error_of([&] { DaxMapping::open(path, plain); }), Errc::permission);
}

TEST_F(DaxTest, CharacterDeviceThatIsNotDax) {
  EXPECT_EQ(error_of([&] { DaxMapping::open("/dev/null", plain); }, {"no DAX device"}),
            Errc::invalid_argument);
  EXPECT_EQ(error_of([&] { DaxMapping::create("/dev/null", kBytes, plain); }),
            Errc::invalid_argument);
}

// /dev/zero stands for the device: it maps, and a made tree says that it is DAX.
class DaxDeviceTest : public DaxTest {
 protected:
  DaxDeviceTest() {
    sys.write("/sys/bus/dax/x", "");
    sys.link(device + "/subsystem", "/sys/bus/dax");
    sys.link("/sys/dev/char/1:5", device);
    sys.write("/sys/devices/ndbus0/region0/persistence_domain", "memory_controller\n");
    size("4198400\n");  // two units of 2 MiB and a rest
    options.sysfs_root = sys.root();
  }
  void size(const std::string& text) { sys.write(device + "/size", text); }

  const std::string device = "/sys/devices/ndbus0/region0/dax0.1/dax/dax0.0";
  FakeSysfs sys;
  DaxOptions options;
};

TEST_F(DaxDeviceTest, MapsWholeUnitsAndFlushes) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  try {
    const DaxMapping mapping = DaxMapping::open("/dev/zero", options);
    EXPECT_EQ(mapping.kind(), DaxKind::device);
    EXPECT_EQ(mapping.bytes(), 4u << 20);
    EXPECT_EQ(mapping.persistence_domain(), "memory_controller");
  } catch (const Error& error) {
    // libpmem2 looks for itself and is not deceived; everything before that has worked.
    EXPECT_TRUE(contains(error.what(), "libpmem2")) << error.what();
  }
}

TEST_F(DaxDeviceTest, SizeAndAlignment) {
  for (const char* bad : {"", "x", "-1", "1048576", "0", "99999999999999999999"}) {
    size(bad);
    const Errc code = error_of([&] { DaxMapping::open("/dev/zero", options); });
    EXPECT_TRUE(code == Errc::damaged || code == Errc::io) << bad;
  }
  size("2097152");
  options.min_bytes = 4 << 20;
  EXPECT_EQ(error_of([&] { DaxMapping::open("/dev/zero", options); }), Errc::damaged);
  options.min_bytes = 0;
  sys.write(device + "/align", "1073741824\n");
  EXPECT_EQ(error_of([&] { DaxMapping::open("/dev/zero", options); }), Errc::damaged);
}

TEST(DaxFlush, PersistsByLibpmem2) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  const std::string path = (fs::temp_directory_path() / "holdfast-flush-test").string();
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::ftruncate(fd, 8192), 0);
  void* address = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ASSERT_NE(address, MAP_FAILED);
  for (const FlushUnit unit : {FlushUnit::cache_line, FlushUnit::fence, FlushUnit::page}) {
    const DaxFlush flush(fd, address, 8192, unit, path);
    std::memset(address, 'f', 8192);
    flush.persist(address, 8192);
    flush.persist(static_cast<char*>(address) + 4090, 100);
    flush.persist(address, 0);
  }
  ::munmap(address, 8192);
  ::close(fd);
  fs::remove(path);
}

// ---- Guarantees ---------------------------------------------------------------------------------

class DaxGuaranteeTest : public ::testing::Test {
 protected:
  DaxGuaranteeTest() {
    sys.cpu("GenuineIntel");
    sys.pci("pci0000:3a", {"0000:3a:00.0", "0000:3b:00.0"});
    facts.path = "/dev/dax0.0";
    facts.kind = DaxKind::device;
    facts.persistence_domain = "memory_controller";
    facts.cuda = true;
    facts.gpu = "0000:3b:00.0";
    ddio(0x80);
  }
  void ddio(std::uint32_t value, std::size_t bytes = 4096) {
    sys.config("/sys/devices/pci0000:3a/0000:3a:00.0", bytes, value);
  }
  void expect(Rung persist, Rung commit, const std::string& reason) {
    const Guarantee guarantee = dax_guarantee(facts, Platform(sys.root()));
    EXPECT_EQ(guarantee.persist, persist) << guarantee.reason;
    EXPECT_EQ(guarantee.commit, commit) << guarantee.reason;
    EXPECT_TRUE(contains(guarantee.reason, reason)) << guarantee.reason;
  }
  FakeSysfs sys;
  DaxFacts facts;
};

TEST_F(DaxGuaranteeTest, GpuWithDdio) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  expect(Rung::process, Rung::power, "persist_begin()");
  ddio(0);
  expect(Rung::power, Rung::power, "DDIO is off for root port 0000:3a:00.0");
  ddio(0x80, 256);
  expect(Rung::process, Rung::power, "run as root");
  facts.gpu = "0000:77:00.0";
  expect(Rung::process, Rung::power, "no PCI device");
  facts.gpu = "";
  expect(Rung::process, Rung::power, "address is not known");
}

TEST_F(DaxGuaranteeTest, EadrNeedsNoSwitch) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  facts.persistence_domain = "cpu_cache";
  expect(Rung::power, Rung::power, "eADR");
  facts.cuda = false;
  expect(Rung::power, Rung::power, "eADR");
}

TEST_F(DaxGuaranteeTest, AmdClaimsNothingInKernels) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  sys.cpu("AuthenticAMD");
  ddio(0);
  expect(Rung::process, Rung::power, "no DDIO switch");
}

TEST_F(DaxGuaranteeTest, ProcessorBackendFlushesAtCommit) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  facts.cuda = false;
  expect(Rung::process, Rung::power, "libpmem2");
}

TEST_F(DaxGuaranteeTest, UnknownDomainMayBeVolatile) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  ddio(0);
  facts.persistence_domain = "unknown";
  expect(Rung::process, Rung::process, "volatile");
}

TEST_F(DaxGuaranteeTest, PlainFileIsForTests) {
  facts.kind = DaxKind::plain_file;
  facts.persistence_domain = "cpu_cache";
  expect(Rung::process, Rung::process, "ordinary file");
}

TEST_F(DaxGuaranteeTest, FileSystemsCannotBePinnedForAGpu) {
  if (!DaxFlush::available()) GTEST_SKIP() << "needs libpmem2";
  facts.kind = DaxKind::file;
  expect(Rung::process, Rung::power, "6.5");
  EXPECT_TRUE(contains(dax_pin_hint(DaxKind::file, true), "devdax"));
  EXPECT_EQ(dax_pin_hint(DaxKind::file, false), "");
  EXPECT_EQ(dax_pin_hint(DaxKind::device, true), "");
}

}  // namespace
}  // namespace holdfast::core
