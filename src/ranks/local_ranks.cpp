// A group of processes of one machine: a star of Unix sockets, rank 0 in its middle.
//
// Rank 0 has a lock on PATH.lock for as long as the group lives, so that what stands under PATH is
// left from a run that has ended. The socket goes once all are there. A process that ends closes
// its socket, killed or not: rank 0 hears of it, and tells the others which one it was. What a
// stopped process never sends, deadlines end.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

#include "core/files.hpp"
#include "core/process.hpp"
#include "holdfast/ranks.hpp"

namespace holdfast {

using core::UniqueFd;
using detail::concat;

namespace {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;
using std::chrono::milliseconds;

constexpr std::uint32_t kMagic = 0x4b524648;  // "HFRK"
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 30;
constexpr int kMostRanks = 4096;
constexpr char kRemedy[] = ": end the other ranks, and start all of them again";

enum class Kind : std::uint32_t { hello = 1, welcome, data, result, failure };

struct Header {
  std::uint32_t magic = kMagic;
  Kind kind{};
  std::uint64_t sequence = 0;  // of the collective; of a hello: rank and size
  std::uint64_t bytes = 0;     // behind the header
};

std::string words(milliseconds time) {
  if (time.count() % 1000 == 0) return concat(time.count() / 1000, " s");
  return concat(time.count(), " ms");
}

// For poll(): rounded up, and never negative.
int left_ms(Deadline deadline) {
  const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1'000'000));
}

enum class Moved { all, ended, late };

// Until the descriptor is ready; false if it is not in time.
bool wait_for(int fd, short events, Deadline deadline) {
  for (;;) {
    pollfd entry{fd, events, 0};
    const int ready = ::poll(&entry, 1, left_ms(deadline));
    if (ready > 0) return true;
    if (ready == 0 && Clock::now() >= deadline) return false;
  }
}

Moved send_all(int fd, std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes = bytes.subspan(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!wait_for(fd, POLLOUT, deadline)) return Moved::late;
    } else if (errno != EINTR) {
      return Moved::ended;
    }
  }
  return Moved::all;
}

Moved send_frame(int fd, Header header, std::span<const std::byte> bytes, Deadline deadline) {
  header.bytes = bytes.size();
  const Moved moved = send_all(fd, std::as_bytes(std::span(&header, 1)), deadline);
  return moved == Moved::all ? send_all(fd, bytes, deadline) : moved;
}

// A frame that comes in pieces.
class Frame {
 public:
  enum class State { incomplete, whole, ended };
  // Takes what is there, without waiting.
  State take(int fd) {
    for (;;) {
      const std::span<std::byte> room = rest();
      if (room.empty()) return State::whole;
      const ssize_t got = ::recv(fd, room.data(), room.size(), MSG_DONTWAIT);
      if (got == 0) return State::ended;
      if (got < 0) {
        if (errno == EINTR) continue;
        return errno == EAGAIN || errno == EWOULDBLOCK ? State::incomplete : State::ended;
      }
      at_ += static_cast<std::size_t>(got);
      if (at_ == sizeof header_) {
        if (header_.magic != kMagic || header_.bytes > kMostRanks * kMostBytes) return State::ended;
        bytes_.resize(header_.bytes);
      }
    }
  }
  const Header& header() const { return header_; }
  RankGroup::Bytes& bytes() { return bytes_; }
  std::string text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  std::span<std::byte> rest() {
    if (at_ < sizeof header_) return std::as_writable_bytes(std::span(&header_, 1)).subspan(at_);
    return std::span(bytes_).subspan(at_ - sizeof header_);
  }
  Header header_{};
  std::size_t at_ = 0;
  RankGroup::Bytes bytes_;
};

Moved receive(int fd, Frame& frame, Deadline deadline) {
  for (;;) {
    const Frame::State state = frame.take(fd);
    if (state == Frame::State::whole) return Moved::all;
    if (state == Frame::State::ended) return Moved::ended;
    if (!wait_for(fd, POLLIN, deadline)) return Moved::late;
  }
}

// The address of PATH by way of its folder's descriptor, since an address is shorter than a path
// may be.
class Address {
 public:
  explicit Address(const std::string& path)
      : folder_(::open(core::folder_of(path).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
    if (!folder_) throw core::system_error(errno, "open the folder of", path);
    const std::string name = concat("/proc/self/fd/", folder_.get(), "/", core::base_name(path));
    if (name.size() >= sizeof address_.sun_path) {
      throw Error(Errc::invalid_argument,
                  concat("'", path, "': the name of a socket has at most 80 bytes"));
    }
    address_.sun_family = AF_UNIX;
    name.copy(address_.sun_path, name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address_); }
  static constexpr socklen_t kBytes = sizeof(sockaddr_un);

 private:
  UniqueFd folder_;
  sockaddr_un address_{};
};

UniqueFd make_socket(const std::string& path) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw core::system_error(errno, "make a socket for", path);
  return fd;
}

std::string list_of(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  const std::size_t shown = std::min<std::size_t>(ranks.size(), 8);
  for (std::size_t i = 0; i < shown; ++i) text += concat(i > 0 ? ", " : "", ranks[i]);
  if (shown < ranks.size()) text += concat(" and ", ranks.size() - shown, " more");
  return text;
}

class LocalRanks : public RankGroup {
 public:
  explicit LocalRanks(const LocalRanksOptions& options) : options_(options) {
    check();
    peers_.resize(static_cast<std::size_t>(options_.size));
    if (options_.size == 1) return;
    if (options_.rank == 0) {
      gather_ranks();
    } else {
      join();
    }
  }

  int rank() const override { return options_.rank; }
  int size() const override { return options_.size; }
  std::string node() const override {
    return options_.node.empty() ? RankGroup::node() : options_.node;
  }
  std::vector<Bytes> all_gather(std::span<const std::byte> mine, milliseconds timeout) override {
    if (!maker_.is_this_process()) maker_.refuse("this group of ranks", "make one in the child");
    if (mine.size() > kMostBytes) {
      throw Error(Errc::invalid_argument, concat("all_gather: ", mine.size(), " bytes: at most ",
                                                 kMostBytes, " from each rank"));
    }
    if (!lost_.empty()) throw Error(Errc::rank_lost, lost_);
    if (options_.size == 1) return {Bytes(mine.begin(), mine.end())};
    ++sequence_;
    timeout = std::max(timeout, milliseconds(0));
    return options_.rank == 0 ? collect(mine, timeout) : contribute(mine, timeout);
  }

 private:
  void check() const {
    if (options_.size < 1 || options_.size > kMostRanks || options_.rank < 0 ||
        options_.rank >= options_.size) {
      throw Error(Errc::invalid_argument,
                  concat("rank ", options_.rank, " of ", options_.size,
                         ": ranks are 0 to size - 1, and at most ", kMostRanks));
    }
    if (options_.path.empty() && options_.size > 1) {
      throw Error(Errc::invalid_argument, "a group of ranks needs the path of a socket");
    }
  }
  int fd(int rank) const { return peers_[static_cast<std::size_t>(rank)].get(); }

  // The group is of no more use: sockets are closed, so that the others hear of it.
  [[noreturn]] void lose(const std::string& what) {
    lost_ = what.ends_with(kRemedy) ? what : concat(what, kRemedy);
    for (UniqueFd& peer : peers_) peer.reset();
    throw Error(Errc::rank_lost, lost_);
  }
  // Rank 0 tells all others, too.
  void tell(const std::string& what) const {
    for (const UniqueFd& peer : peers_) {
      if (!peer) continue;
      send_frame(peer.get(), {.kind = Kind::failure}, std::as_bytes(std::span(what)), Clock::now());
    }
  }
  [[noreturn]] void tell_and_lose(const std::string& what) {
    tell(concat(what, kRemedy));
    lose(what);
  }

  // --- Rank 0 ----------------------------------------------------------------------------------

  void gather_ranks() {
    const Deadline deadline = Clock::now() + options_.timeout;
    take_lock();
    const Address address(options_.path);
    struct stat info {};
    if (::lstat(options_.path.c_str(), &info) == 0) {
      if (!S_ISSOCK(info.st_mode))
        throw core::system_error(EEXIST, "make the socket", options_.path);
      ::unlink(options_.path.c_str());  // of a run that has ended
    }
    const UniqueFd listener = make_socket(options_.path);
    const bool bound = ::bind(listener.get(), address.get(), Address::kBytes) == 0 &&
                       ::listen(listener.get(), kMostRanks) == 0;
    if (!bound) throw core::system_error(errno, "make the socket", options_.path);
    struct Unlink {
      const std::string& path;
      ~Unlink() { ::unlink(path.c_str()); }
    } const unlink{options_.path};
    for (std::vector<int> out = missing(); !out.empty(); out = missing()) {
      if (!wait_for(listener.get(), POLLIN, deadline)) {
        tell_and_lose(concat(list_of(out), " did not come within ", words(options_.timeout)));
      }
      UniqueFd peer(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (peer) admit(std::move(peer), deadline);
    }
    for (int rank = 1; rank < options_.size; ++rank) {
      send_frame(fd(rank), {.kind = Kind::welcome}, {},
                 deadline);  // one that ended, collect() meets
    }
  }

  void take_lock() {
    const std::string path = options_.path + ".lock";
    lock_ = UniqueFd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!lock_) throw core::system_error(errno, "make", path);
    core::lock_file(lock_.get(), true, path);
  }

  std::vector<int> missing() const {
    std::vector<int> result;
    for (int rank = 1; rank < options_.size; ++rank) {
      if (fd(rank) < 0) result.push_back(rank);
    }
    return result;
  }

  void admit(UniqueFd peer, Deadline deadline) {
    const auto refuse = [&](const std::string& why) {
      send_frame(peer.get(), {.kind = Kind::failure}, std::as_bytes(std::span(why)), deadline);
    };
    ucred owner{};
    socklen_t bytes = sizeof owner;
    const bool known = ::getsockopt(peer.get(), SOL_SOCKET, SO_PEERCRED, &owner, &bytes) == 0;
    if (!known || owner.uid != ::geteuid()) return refuse("another user's group");
    Frame hello;
    if (receive(peer.get(), hello, std::min(deadline, Clock::now() + milliseconds(2000))) !=
            Moved::all ||
        hello.header().kind != Kind::hello) {
      return;
    }
    const int rank = static_cast<int>(hello.header().sequence >> 32);
    const int size = static_cast<int>(hello.header().sequence & 0xffffffffu);
    if (size != options_.size || rank < 1 || rank >= size) {
      const std::string why =
          concat("rank ", rank, " was told of ", size, " ranks, and rank 0 of ", options_.size);
      refuse(why);
      tell_and_lose(why);
    }
    UniqueFd& place = peers_[static_cast<std::size_t>(rank)];
    char byte = 0;
    if (place && ::recv(place.get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) != 0) {
      return refuse(concat("there is a rank ", rank, " already"));
    }
    place = std::move(peer);
  }

  std::vector<Bytes> collect(std::span<const std::byte> mine, milliseconds timeout) {
    const Deadline deadline = Clock::now() + timeout;
    std::vector<Frame> frames(peers_.size());
    std::vector<int> waiting;
    for (int rank = 1; rank < options_.size; ++rank) waiting.push_back(rank);
    while (!waiting.empty()) {
      std::vector<pollfd> entries;
      entries.reserve(waiting.size());
      for (const int rank : waiting) entries.push_back({fd(rank), POLLIN, 0});
      const int ready = ::poll(entries.data(), entries.size(), left_ms(deadline));
      if (ready == 0 && Clock::now() >= deadline) {
        tell_and_lose(concat(list_of(waiting), " did not come within ", words(timeout)));
      }
      std::erase_if(waiting, [&](int rank) { return has_come(rank, frames); });
    }
    std::vector<Bytes> result(peers_.size());
    result[0].assign(mine.begin(), mine.end());
    for (std::size_t rank = 1; rank < result.size(); ++rank) {
      result[rank] = std::move(frames[rank].bytes());
    }
    distribute(result, deadline);
    return result;
  }

  bool has_come(int rank, std::vector<Frame>& frames) {
    Frame& frame = frames[static_cast<std::size_t>(rank)];
    const Frame::State state = frame.take(fd(rank));
    if (state == Frame::State::incomplete) return false;
    if (state == Frame::State::ended) tell_and_lose(concat("rank ", rank, " has ended"));
    if (frame.header().kind != Kind::data || frame.header().sequence != sequence_) {
      tell_and_lose(concat("rank ", rank, " is at another call than rank 0"));
    }
    return true;
  }

  // Whoever has ended meanwhile does not take the result from the others: the next call tells.
  void distribute(const std::vector<Bytes>& result, Deadline deadline) {
    Bytes all;
    for (const Bytes& bytes : result) {
      const std::uint64_t size = bytes.size();
      const auto* const front = reinterpret_cast<const std::byte*>(&size);
      all.insert(all.end(), front, front + sizeof size);
      all.insert(all.end(), bytes.begin(), bytes.end());
    }
    deadline = std::max(deadline, Clock::now() + milliseconds(100));
    for (int rank = 1; rank < options_.size; ++rank) {
      const Moved moved =
          send_frame(fd(rank), {.kind = Kind::result, .sequence = sequence_}, all, deadline);
      if (moved == Moved::all || !lost_.empty()) continue;
      lost_ =
          concat("rank ", rank, moved == Moved::ended ? " has ended" : " takes no answer", kRemedy);
    }
    if (lost_.empty()) return;
    tell(lost_);
    for (UniqueFd& peer : peers_) peer.reset();
  }

  // --- The others ------------------------------------------------------------------------------

  // Rank 0 knows which rank is missing, and says so at its own deadline.
  static Deadline later(milliseconds timeout) {
    return Clock::now() + timeout + std::min(timeout / 2, milliseconds(1000)) + milliseconds(50);
  }

  void join() {
    const Deadline deadline = later(options_.timeout);
    const std::uint64_t self =
        static_cast<std::uint64_t>(options_.rank) << 32 | static_cast<std::uint32_t>(options_.size);
    for (; Clock::now() < deadline; std::this_thread::sleep_for(milliseconds(2))) {
      const Address address(options_.path);
      UniqueFd fd = make_socket(options_.path);
      if (::connect(fd.get(), address.get(), Address::kBytes) != 0) {
        if (errno == ENOENT || errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) continue;
        throw core::system_error(errno, "connect to", options_.path);
      }
      Frame answer;
      if (send_frame(fd.get(), {.kind = Kind::hello, .sequence = self}, {}, deadline) !=
          Moved::all) {
        continue;
      }
      const Moved moved = receive(fd.get(), answer, deadline);
      if (moved == Moved::late) break;
      if (moved == Moved::ended) continue;  // it was of a run that has ended
      if (answer.header().kind == Kind::failure) lose(answer.text());
      peers_[0] = std::move(fd);
      return;
    }
    lose(concat("rank 0 did not come within ", words(options_.timeout), " to '", options_.path,
                "'"));
  }

  std::vector<Bytes> contribute(std::span<const std::byte> mine, milliseconds timeout) {
    const Deadline deadline = later(timeout);
    Moved moved = send_frame(fd(0), {.kind = Kind::data, .sequence = sequence_}, mine, deadline);
    Frame frame;
    // What rank 0 said before it ended is there still.
    if (moved != Moved::late) moved = receive(fd(0), frame, deadline);
    if (moved == Moved::late) lose(concat("rank 0 gave no answer within ", words(timeout)));
    if (moved == Moved::ended) lose("rank 0 has ended");
    if (frame.header().kind == Kind::failure) lose(frame.text());
    std::vector<Bytes> result;
    const Bytes& all = frame.bytes();
    std::size_t at = 0;
    while (at + sizeof(std::uint64_t) <= all.size()) {
      std::uint64_t size = 0;
      std::memcpy(&size, all.data() + at, sizeof size);
      at += sizeof size;
      if (size > all.size() - at) break;
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      result.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(size));
      at += size;
    }
    const Header& header = frame.header();
    if (header.kind != Kind::result || header.sequence != sequence_ || at != all.size() ||
        result.size() != peers_.size()) {
      lose("rank 0 is at another call than this one");
    }
    return result;
  }

  const LocalRanksOptions options_;
  const core::Maker maker_;
  UniqueFd lock_;                // rank 0's
  std::vector<UniqueFd> peers_;  // of rank 0 those of all others, by rank; of others rank 0's
  std::uint64_t sequence_ = 0;
  std::string lost_;
};

}  // namespace

std::shared_ptr<RankGroup> local_ranks(const LocalRanksOptions& options) {
  return std::make_shared<LocalRanks>(options);
}

}  // namespace holdfast
