#include "holdfast/platform.hpp"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "core/ddio.hpp"
#include "core/fake_sysfs.hpp"
#include "core/persist_window.hpp"
#include "core/sysfs.hpp"
#include "support/error_of.hpp"

namespace holdfast {
namespace {

namespace fs = std::filesystem;
using test::error_of;

constexpr char kGpu[] = "0000:3d:00.0";
constexpr char kPortFolder[] = "/sys/devices/pci0000:3a/0000:3a:00.0";
constexpr std::uint32_t kOn = 0x9188;  // bit 7 set, and others that must be kept
constexpr std::uint32_t kOff = 0x9108;

// An Intel machine with a GPU below a switch: root port 3a:00.0, switch 3b/3c, GPU 3d.
class PlatformTest : public ::testing::Test {
 protected:
  PlatformTest() {
    sys.cpu("GenuineIntel");
    sys.pci("pci0000:3a", {"0000:3a:00.0", "0000:3b:00.0", "0000:3c:08.0", kGpu});
    sys.config(kPortFolder, 4096, kOn);
  }
  void add_dax(const std::string& name, const std::string& domain, const std::string& size) {
    const std::string region =
        "/sys/devices/LNXSYSTM:00/ACPI0012:00/ndbus0/region" + name.substr(3);
    const std::string device = region + "/dax/" + name;
    sys.write(device + "/size", size);
    sys.write(device + "/numa_node", "1\n");
    sys.write(region + "/persistence_domain", domain + "\n");
    sys.link("/sys/bus/dax/devices/" + name, device);
  }

  FakeSysfs sys;
  Platform platform{sys.root()};
};

TEST_F(PlatformTest, RootPortAboveASwitch) { EXPECT_EQ(platform.root_port(kGpu), "0000:3a:00.0"); }

TEST_F(PlatformTest, AcceptsTheUsualFormsOfAnAddress) {
  sys.pci("pci0000:00", {"0000:00:1c.0", "0000:01:00.0"});
  for (const char* form : {"01:00.0", "0000:01:00.0", "00000000:01:00.0"})
    EXPECT_EQ(platform.root_port(form), "0000:00:1c.0") << form;
  EXPECT_EQ(platform.root_port("0000:3D:00.0"), "0000:3a:00.0");
}

TEST_F(PlatformTest, SeveralPortsAndDomains) {
  sys.pci("pci0000:3a", {"0000:3a:02.0", "0000:60:00.0"});
  sys.pci("pci0000:ae", {"0000:ae:00.0", "0000:af:00.0"});
  sys.pci("pci10000:00", {"10000:00:02.0", "10000:01:00.0"});
  EXPECT_EQ(platform.root_port("0000:60:00.0"), "0000:3a:02.0");
  EXPECT_EQ(platform.root_port("0000:af:00.0"), "0000:ae:00.0");
  EXPECT_EQ(platform.root_port("10000:01:00.0"), "10000:00:02.0");
}

TEST_F(PlatformTest, InnerDomainRootCounts) {
  sys.pci("pci0000:16", {"0000:16:05.5", "pci10001:00", "10001:00:03.0", "10001:02:00.0"});
  EXPECT_EQ(platform.root_port("10001:02:00.0"), "10001:00:03.0");
}

TEST_F(PlatformTest, DeviceDirectlyBelowTheRootHasNoPort) {
  sys.pci("pci0000:00", {"0000:00:05.0"});
  EXPECT_EQ(error_of([&] { platform.root_port("0000:00:05.0"); }, {"no root port"}),
            Errc::not_found);
  EXPECT_EQ(error_of([&] { platform.ddio("0000:00:05.0"); }), Errc::not_found);
  EXPECT_NE(platform.ddio_reason("0000:00:05.0").find("no root port"), std::string::npos);
}

TEST_F(PlatformTest, DeviceOutsideThePciTreeHasNoPort) {
  fs::create_directories(sys.root() + "/sys/devices/platform/odd");
  sys.link("/sys/bus/pci/devices/0000:09:00.0", "/sys/devices/platform/odd");
  EXPECT_EQ(error_of([&] { platform.root_port("0000:09:00.0"); }), Errc::not_found);
}

TEST_F(PlatformTest, MissingDeviceAndBadAddresses) {
  EXPECT_EQ(error_of([&] { platform.root_port("0000:77:00.0"); }), Errc::not_found);
  for (const char* bad : {"", "..", "../../../etc", "0000:01:00", "0000:01:00.9", "0000:01:00.0/x",
                          "0000:01:00.0\n", "g000:01:00.0"})
    EXPECT_EQ(error_of([&] { platform.root_port(bad); }), Errc::invalid_argument) << bad;
  EXPECT_EQ(error_of([&] { platform.root_port(std::string(1 << 20, '0')); }),
            Errc::invalid_argument);
}

TEST_F(PlatformTest, LoopOfLinksIsAMissingDevice) {
  sys.link("/sys/bus/pci/devices/0000:0a:00.0", "/sys/bus/pci/devices/0000:0b:00.0");
  sys.link("/sys/bus/pci/devices/0000:0b:00.0", "/sys/bus/pci/devices/0000:0a:00.0");
  EXPECT_EQ(error_of([&] { platform.root_port("0000:0a:00.0"); }), Errc::not_found);
}

TEST_F(PlatformTest, LinkOutOfTheTreeIsAMissingDevice) {
  FakeSysfs other;
  other.pci("pci0000:3a", {"0000:3a:00.0", "0000:0c:00.0"});
  fs::create_symlink(other.root() + "/sys/devices/pci0000:3a/0000:3a:00.0/0000:0c:00.0",
                     sys.root() + "/sys/bus/pci/devices/0000:0c:00.0");
  EXPECT_EQ(error_of([&] { platform.root_port("0000:0c:00.0"); }), Errc::not_found);
}

TEST_F(PlatformTest, ReadsDdio) {
  const auto on = platform.ddio(kGpu);
  ASSERT_TRUE(on);
  EXPECT_TRUE(on->enabled);
  EXPECT_EQ(on->root_port, "0000:3a:00.0");
  EXPECT_EQ(platform.ddio_reason(kGpu), "");
  sys.config(kPortFolder, 4096, kOff);
  EXPECT_FALSE(platform.ddio(kGpu)->enabled);
}

TEST_F(PlatformTest, SetsOneBitAndKeepsTheRest) {
  platform.set_ddio(kGpu, false);
  EXPECT_EQ(sys.config_word(kPortFolder, 0x180), kOff);
  EXPECT_FALSE(platform.ddio(kGpu)->enabled);
  platform.set_ddio(kGpu, true);
  EXPECT_EQ(sys.config_word(kPortFolder, 0x180), kOn);
  EXPECT_EQ(sys.config_word(kPortFolder, 0), 0x20308086u);
  EXPECT_EQ(fs::file_size(sys.root() + kPortFolder + "/config"), 4096u);
}

TEST_F(PlatformTest, ShortConfigurationCannotBeReadOrSet) {
  for (const std::size_t bytes : {64u, 256u, 0x180u, 0x183u}) {
    sys.config(kPortFolder, bytes, kOn);
    EXPECT_FALSE(platform.ddio(kGpu)) << bytes;
    EXPECT_NE(platform.ddio_reason(kGpu).find("root"), std::string::npos);
    EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }, {"run as root"}), Errc::permission);
    EXPECT_EQ(fs::file_size(sys.root() + kPortFolder + "/config"), bytes);
  }
}

TEST_F(PlatformTest, MissingConfigurationAndDeadPort) {
  fs::remove(sys.root() + kPortFolder + "/config");
  EXPECT_FALSE(platform.ddio(kGpu));
  EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }), Errc::permission);
  sys.write(std::string(kPortFolder) + "/config", std::string(4096, '\xff'));
  EXPECT_FALSE(platform.ddio(kGpu));
  EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }), Errc::permission);
}

TEST_F(PlatformTest, FolderOrFifoInPlaceOfTheConfiguration) {
  const std::string config = sys.root() + kPortFolder + "/config";
  fs::remove(config);
  fs::create_directory(config);
  EXPECT_FALSE(platform.ddio(kGpu));
  EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }), Errc::permission);
  fs::remove(config);
  ASSERT_EQ(::mkfifo(config.c_str(), 0600), 0);
  EXPECT_FALSE(platform.ddio(kGpu));
  EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }), Errc::permission);
}

// As under kernel lockdown, where even root's writes are refused.
TEST_F(PlatformTest, ConfigurationThatMayNotBeWritten) {
  const std::string config = sys.root() + kPortFolder + "/config";
  const std::string bytes = *sysfs::read_text(config);
  const int sealed = ::memfd_create("config", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(::write(sealed, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  ASSERT_EQ(::fcntl(sealed, F_ADD_SEALS, F_SEAL_WRITE), 0);
  fs::remove(config);
  fs::create_symlink("/proc/self/fd/" + std::to_string(sealed), config);

  EXPECT_TRUE(platform.ddio(kGpu)->enabled);
  EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }, {"lockdown"}), Errc::permission);
  EXPECT_TRUE(platform.ddio(kGpu)->enabled);
  platform.set_ddio(kGpu, true);  // as it is: nothing to write
  ::close(sealed);
}

TEST_F(PlatformTest, OnlyDocumentedPortsAreBelievedOrWritten) {
  for (const auto& [vendor, device] :
       {std::pair<std::uint16_t, std::uint16_t>{0x8086, 0x352a}, {0x1b36, 0x000c}, {0x8086, 0}}) {
    sys.config(kPortFolder, 4096, kOn, vendor, device);
    EXPECT_FALSE(platform.ddio(kGpu));
    EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }, {"documented"}), Errc::unsupported);
    EXPECT_EQ(sys.config_word(kPortFolder, 0x180), kOn);
  }
  for (const std::uint16_t device :
       std::initializer_list<std::uint16_t>{0x0e04, 0x2f08, 0x6f02, 0x2033, 0x347a})
    EXPECT_TRUE(ddio_register_documented(device)) << std::hex << device;
}

TEST_F(PlatformTest, AmdHasNoDdio) {
  sys.cpu("AuthenticAMD");
  EXPECT_EQ(platform.processor_vendor(), "AuthenticAMD");
  EXPECT_FALSE(platform.ddio(kGpu));
  EXPECT_NE(platform.ddio_reason(kGpu).find("AuthenticAMD"), std::string::npos);
  EXPECT_EQ(error_of([&] { platform.set_ddio(kGpu, false); }), Errc::unsupported);
  EXPECT_EQ(sys.config_word(kPortFolder, 0x180), kOn);
}

TEST_F(PlatformTest, ProcessorVendor) {
  EXPECT_EQ(platform.processor_vendor(), "GenuineIntel");
  for (const std::string& text :
       {std::string(), std::string("vendor_id"), std::string("vendor_id : \n"),
        std::string("xvendor_id : GenuineIntel"), std::string(1 << 20, 'v')}) {
    sys.write("/proc/cpuinfo", text);
    EXPECT_EQ(platform.processor_vendor(), "unknown");
  }
  fs::remove(sys.root() + "/proc/cpuinfo");
  EXPECT_EQ(platform.processor_vendor(), "unknown");
}

TEST_F(PlatformTest, DaxDevicesOfAllKinds) {
  EXPECT_TRUE(platform.dax_devices().empty());
  add_dax("dax0.0", "memory_controller", "17179869184\n");
  add_dax("dax1.0", "cpu_cache", "2097152");
  // CXL memory: no persistence domain stated anywhere.
  sys.write("/sys/devices/platform/ACPI0017:00/root0/region0/dax_region0/dax2.0/size", "4194304");
  sys.link("/sys/bus/dax/devices/dax2.0",
           "/sys/devices/platform/ACPI0017:00/root0/region0/dax_region0/dax2.0");
  // Ordinary memory by now.
  add_dax("dax3.0", "memory_controller", "2097152");
  sys.write("/sys/bus/dax/drivers/kmem/bind", "");
  sys.link("/sys/bus/dax/devices/dax3.0/driver", "/sys/bus/dax/drivers/kmem");
  // Block devices: one direct, one not, one no pmem at all.
  const std::string region = "/sys/devices/ndbus0/region4";
  sys.write(region + "/persistence_domain", "memory_controller\n");
  sys.write(region + "/pfn4.0/block/pmem4/queue/dax", "1\n");
  sys.write(region + "/pfn4.0/block/pmem4/size", "8192\n");
  sys.write(region + "/pfn4.0/numa_node", "0\n");
  sys.link(region + "/pfn4.0/block/pmem4/device", region + "/pfn4.0");
  sys.link("/sys/block/pmem4", region + "/pfn4.0/block/pmem4");
  sys.write("/sys/block/pmem5/queue/dax", "0\n");
  sys.write("/sys/block/sda/queue/dax", "1\n");

  const auto devices = platform.dax_devices();
  ASSERT_EQ(devices.size(), 4u);
  EXPECT_EQ(devices[0].path, "/dev/dax0.0");
  EXPECT_EQ(devices[0].kind, "device-dax");
  EXPECT_EQ(devices[0].size, 17179869184u);
  EXPECT_EQ(devices[0].persistence_domain, "memory_controller");
  EXPECT_EQ(devices[0].numa_node, 1);
  EXPECT_EQ(devices[1].persistence_domain, "cpu_cache");
  EXPECT_EQ(devices[2].path, "/dev/dax2.0");
  EXPECT_EQ(devices[2].persistence_domain, "unknown");
  EXPECT_EQ(devices[2].numa_node, -1);
  EXPECT_EQ(devices[3].path, "/dev/pmem4");
  EXPECT_EQ(devices[3].kind, "fsdax");
  EXPECT_EQ(devices[3].size, 8192u * 512);
  EXPECT_EQ(devices[3].persistence_domain, "memory_controller");
  EXPECT_EQ(devices[3].numa_node, 0);
}

TEST_F(PlatformTest, GarbageInDeviceFiles) {
  int n = 0;
  for (const std::string& size :
       {std::string("-1"), std::string("12x"), std::string(""),
        std::string("99999999999999999999999999"), std::string("0x1000"), std::string("1 2"),
        std::string(1 << 20, '9'), std::string("\0\0", 2)})
    add_dax("dax" + std::to_string(n++) + ".0", "cpu_cachex", size);
  sys.write("/sys/block/pmem0/queue/dax", "1");
  sys.write("/sys/block/pmem0/size", "18446744073709551615");
  const auto devices = platform.dax_devices();
  ASSERT_EQ(devices.size(), 9u);
  for (const DaxDevice& device : devices) {
    EXPECT_EQ(device.size, 0u);
    EXPECT_EQ(device.persistence_domain, "unknown");
  }
}

TEST_F(PlatformTest, StrangeEntriesAmongTheDevices) {
  sys.link("/sys/bus/dax/devices/dax0.0", "/sys/bus/dax/devices/dax1.0");
  sys.link("/sys/bus/dax/devices/dax1.0", "/sys/bus/dax/devices/dax0.0");
  fs::create_symlink("/", sys.root() + "/sys/bus/dax/devices/dax2.0");
  sys.write("/sys/bus/dax/devices/readme", "");
  sys.write("/sys/bus/dax/devices/dax3.0/size/folder", "");
  fs::create_directories(sys.root() + "/sys/block/pmem0/queue");
  ASSERT_EQ(::mkfifo((sys.root() + "/sys/block/pmem0/queue/dax").c_str(), 0600), 0);
  const auto devices = platform.dax_devices();
  ASSERT_EQ(devices.size(), 1u);
  EXPECT_EQ(devices[0].path, "/dev/dax3.0");
  EXPECT_EQ(devices[0].size, 0u);
}

TEST_F(PlatformTest, LimitsAndSpace) {
  struct rlimit limit {};
  ASSERT_EQ(::getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  EXPECT_EQ(platform.memory_lock_limit(),
            limit.rlim_cur == RLIM_INFINITY ? UINT64_MAX : limit.rlim_cur);
  EXPECT_GT(platform.folder_bytes_total(sys.root()), 0u);
  EXPECT_LE(platform.folder_bytes_free(sys.root()), platform.folder_bytes_total(sys.root()));
  EXPECT_EQ(error_of([&] { platform.folder_bytes_free(sys.root() + "/none"); }), Errc::not_found);
}

TEST_F(PlatformTest, RealMachineAnswers) {
  const Platform here;
  EXPECT_FALSE(here.processor_vendor().empty());
  for (const DaxDevice& device : here.dax_devices()) EXPECT_FALSE(device.path.empty());
}

TEST_F(PlatformTest, PersistWindowNestsAndRestores) {
  add_dax("dax0.0", "memory_controller", "2097152");
  PersistWindow window(platform);
  window.begin(kGpu);
  EXPECT_FALSE(platform.ddio(kGpu)->enabled);
  window.begin(kGpu);
  window.end();
  EXPECT_FALSE(platform.ddio(kGpu)->enabled);
  window.end();
  EXPECT_TRUE(platform.ddio(kGpu)->enabled);
  EXPECT_EQ(error_of([&] { window.end(); }), Errc::invalid_argument);
}

TEST_F(PlatformTest, PersistWindowLeavesDdioOffIfItWasOff) {
  add_dax("dax0.0", "memory_controller", "2097152");
  sys.config(kPortFolder, 4096, kOff);
  PersistWindow window(platform);
  window.begin(kGpu);
  window.end();
  EXPECT_FALSE(platform.ddio(kGpu)->enabled);
}

TEST_F(PlatformTest, PersistWindowDoesNothingWhereNothingIsToBeDone) {
  PersistWindow window(platform);
  window.begin(kGpu);  // no dax device
  EXPECT_TRUE(platform.ddio(kGpu)->enabled);
  window.end();
  add_dax("dax0.0", "cpu_cache", "2097152");  // eADR
  window.begin(kGpu);
  EXPECT_TRUE(platform.ddio(kGpu)->enabled);
  window.end();
  add_dax("dax1.0", "memory_controller", "2097152");
  window.begin("");  // no GPU
  EXPECT_TRUE(platform.ddio(kGpu)->enabled);
  window.end();
  sys.cpu("AuthenticAMD");
  window.begin(kGpu);
  window.end();
  EXPECT_EQ(sys.config_word(kPortFolder, 0x180), kOn);
}

TEST_F(PlatformTest, PersistWindowStaysClosedAfterAnError) {
  add_dax("dax0.0", "memory_controller", "2097152");
  sys.config(kPortFolder, 256, 0);
  PersistWindow window(platform);
  EXPECT_EQ(error_of([&] { window.begin(kGpu); }), Errc::permission);
  EXPECT_EQ(error_of([&] { window.begin("0000:77:00.0"); }), Errc::unsupported);
  EXPECT_EQ(error_of([&] { window.end(); }), Errc::invalid_argument);
}

}  // namespace
}  // namespace holdfast
