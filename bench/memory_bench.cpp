// What checkpoints cost on their way to memory of another node and back, over loopback, beside the
// same bytes through a plain socket: sent and received in pieces of the same size, by one thread
// each, without a checksum, into memory that is used again.
//
//   memory_bench [--bytes=N] [--repeat=N]
//
// One JSON object per line. "object": the store alone; "step": with the checksums of a step's
// chunks, which are taken and held against the bytes on this side.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <memory>
#include <stdexcept>
#include <thread>

#include "bench.hpp"
#include "history/memory_wire.hpp"
#include "history/object_step_store.hpp"
#include "history/step_file.hpp"
#include "holdfast/memory_server.hpp"

namespace {

namespace wire = holdfast::history::wire;
using holdfast::history::AlignedBytes;

void move_all(std::span<std::byte> bytes, auto&& move) {
  while (!bytes.empty()) {
    const ssize_t moved = move(bytes.data(), std::min<std::size_t>(bytes.size(), wire::kPart));
    if (moved <= 0) throw std::runtime_error("the plain connection has ended");
    bytes = bytes.subspan(static_cast<std::size_t>(moved));
  }
}

// A connection of two threads of this process, over loopback.
class PlainPair {
 public:
  PlainPair() {
    const auto listener = wire::listen_at({"127.0.0.1", "0"});
    const wire::Endpoint here{"127.0.0.1", std::to_string(wire::port_of(listener.get()))};
    const auto deadline = wire::Clock::now() + std::chrono::seconds(5);
    const auto near = wire::connect_to(here, deadline);
    wire::wait_for(listener.get(), POLLIN, deadline);
    far_ = holdfast::core::UniqueFd(::accept(listener.get(), nullptr, nullptr));
    // Blocking, as plain programs have it.
    near_ = holdfast::core::UniqueFd(::fcntl(near.get(), F_DUPFD_CLOEXEC, 0));
    ::fcntl(near_.get(), F_SETFL, 0);
  }
  // Until the other side has all of it, and has said so.
  void move(std::span<std::byte> from, std::span<std::byte> to) {
    std::thread receiver([&] {
      move_all(to,
               [&](void* data, std::size_t bytes) { return ::recv(far_.get(), data, bytes, 0); });
      (void)!::send(far_.get(), "", 1, 0);
    });
    move_all(from,
             [&](void* data, std::size_t bytes) { return ::send(near_.get(), data, bytes, 0); });
    char said = 0;
    (void)!::recv(near_.get(), &said, 1, 0);
    receiver.join();
  }

 private:
  holdfast::core::UniqueFd near_, far_;
};

struct Series {
  std::vector<double> put, get, plain;
};

void print(const char* what, std::uint64_t bytes, const Series& series) {
  const auto rate = [&](const std::vector<double>& seconds) {
    return static_cast<double>(bytes) / 1e6 / bench::median(seconds);
  };
  std::vector<double> put_ratios, get_ratios;
  for (std::size_t i = 0; i < series.plain.size(); ++i) {
    put_ratios.push_back(series.plain[i] / series.put[i]);
    get_ratios.push_back(series.plain[i] / series.get[i]);
  }
  bench::Line("memory_server")
      .text("what", what)
      .count("bytes", bytes)
      .count("repeat", series.plain.size())
      .number("write_MB_per_s", rate(series.put))
      .number("read_MB_per_s", rate(series.get))
      .number("plain_MB_per_s", rate(series.plain))
      .number("write_ratio", bench::median(put_ratios))
      .number("read_ratio", bench::median(get_ratios))
      .print();
}

void run(std::uint64_t bytes, std::uint64_t repeat) {
  holdfast::MemoryServer server({.bytes = 4 * bytes + (1 << 20)});
  AlignedBytes blob(bytes), into(bytes), far(bytes);
  for (std::uint64_t i = 0; i + 8 <= bytes; i += 8) {
    const std::uint64_t word = (i + 1) * 0x9e3779b97f4a7c15u;
    std::memcpy(blob.data() + i, &word, 8);
  }
  const auto from = blob.span().first(bytes), to = into.span().first(bytes);
  PlainPair pair;
  const auto objects = holdfast::memory_store(server.address() + "/objects");
  const auto store = holdfast::history::open_object_step_store(
      holdfast::memory_store(server.address() + "/steps"));
  Series of_objects, of_steps;
  for (std::uint64_t i = 0; i <= repeat; ++i) {
    const double plain = bench::seconds([&] { pair.move(from, far.span().first(bytes)); });
    of_objects.plain.push_back(plain);
    of_steps.plain.push_back(plain);
    of_objects.put.push_back(bench::seconds([&] {
      objects->put("x", bytes, [at = blob.data()](std::span<std::byte> part) mutable {
        std::memcpy(part.data(), at, part.size());
        at += part.size();
      });
    }));
    of_objects.get.push_back(bench::seconds([&] { objects->read("x", 0, to); }));
    of_steps.put.push_back(bench::seconds([&] {
      store->write({i, bytes, {{"x", 0, bytes}}, 0, {}}, from, {});
    }));
    of_steps.get.push_back(bench::seconds([&] { store->read(i, to, {}); }));
    if (std::memcmp(from.data(), to.data(), bytes) != 0) throw std::runtime_error("other bytes");
    store->remove(i);
    if (i == 0) of_objects = of_steps = {};  // to warm up
  }
  print("object", bytes, of_objects);
  print("step", bytes, of_steps);
}

}  // namespace

int main(int argc, char** argv) {
  const bench::Options options(argc, argv, {{"bytes", 128u << 20}, {"repeat", 15}});
  try {
    run(options["bytes"], options["repeat"]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memory_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
