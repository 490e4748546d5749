#include "history/status_server.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace holdfast::history {

using core::UniqueFd;
using holdfast::detail::concat;

namespace {

constexpr int kPatienceMs = 2000;  // with an asker who does not read

// A socket's address has room for 107 bytes: its folder goes in by its descriptor.
sockaddr_un address_in(int folder, const std::string& name, const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string text = concat("/proc/self/fd/", folder, "/", name);
  if (text.size() >= sizeof address.sun_path) {
    throw Error(Errc::invalid_argument,
                concat("a socket '", path, "': its name has more than 80 bytes; choose another"));
  }
  std::memcpy(address.sun_path, text.c_str(), text.size() + 1);
  return address;
}

UniqueFd new_socket() {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) throw core::system_error(errno, "make", "a socket");
  return fd;
}

bool is_answered(const sockaddr_un& address) {
  const UniqueFd fd = new_socket();
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  return ::connect(fd.get(), to, sizeof address) == 0 || errno == EAGAIN;
}

}  // namespace

StatusServer::StatusServer(const std::string& path, bool takes_over,
                           std::function<std::string()> answer)
    : path_(core::absolute_path(path)),
      answer_(std::move(answer)),
      folder_(::open(core::folder_of(path_).c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (!folder_) throw core::system_error(errno, "open the folder of the socket", path_);
  bind_socket(takes_over);
  try {
    stop_ = UniqueFd(::eventfd(0, EFD_CLOEXEC));
    if (!stop_) throw core::system_error(errno, "make", "an event");
    thread_ = std::thread([this] { run(); });
  } catch (...) {
    ::unlinkat(folder_.get(), core::base_name(path_).c_str(), 0);
    throw;
  }
}

void StatusServer::bind_socket(bool takes_over) {
  const std::string name = core::base_name(path_);
  const sockaddr_un address = address_in(folder_.get(), name, path_);
  struct stat info {};
  if (::fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      throw Error(Errc::already_exists,
                  concat("the socket '", path_, "' would replace a file: name another"));
    }
    if (!takes_over && is_answered(address)) {
      throw Error(Errc::in_use, concat("a process answers at the socket '", path_,
                                       "': name another, or wait for that process to end"));
    }
    ::unlinkat(folder_.get(), name.c_str(), 0);
  }
  listener_ = new_socket();
  const auto* const at = reinterpret_cast<const sockaddr*>(&address);
  if (::bind(listener_.get(), at, sizeof address) != 0) {
    throw core::system_error(errno, "make the socket", path_);
  }
  const bool there = ::fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0;
  inode_ = there ? info.st_ino : 0;
  if (::listen(listener_.get(), 8) != 0) {
    const int error = errno;
    ::unlinkat(folder_.get(), name.c_str(), 0);
    throw core::system_error(error, "listen at the socket", path_);
  }
}

StatusServer::~StatusServer() {
  const std::uint64_t one = 1;
  while (::write(stop_.get(), &one, sizeof one) < 0 && errno == EINTR) {
  }
  thread_.join();
  const std::string name = core::base_name(path_);
  struct stat info {};
  if (::fstatat(folder_.get(), name.c_str(), &info, AT_SYMLINK_NOFOLLOW) != 0) return;
  if (S_ISSOCK(info.st_mode) && info.st_ino == inode_) {
    ::unlinkat(folder_.get(), name.c_str(), 0);
  }
}

bool StatusServer::wait_for(int fd, short events, int milliseconds) const {
  pollfd waited[2] = {{fd, events, 0}, {stop_.get(), POLLIN, 0}};
  for (;;) {
    const int ready = ::poll(waited, 2, milliseconds);
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && waited[1].revents == 0;
  }
}

void StatusServer::run() noexcept {
  while (wait_for(listener_.get(), POLLIN, -1)) {
    const UniqueFd peer(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!peer) {  // gone again; or there is no descriptor left, which may pass
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::usleep(100'000);
      continue;
    }
    try {
      serve(peer.get());
    } catch (...) {  // no memory, or so: the asker sees an end without an answer
    }
  }
}

void StatusServer::serve(int peer) const {
  ucred who{};
  socklen_t size = sizeof who;
  if (::getsockopt(peer, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return;
  if (who.uid != 0 && who.uid != ::geteuid()) return;
  send_text(peer, answer_());
}

bool StatusServer::send_text(int peer, const std::string& text) const {
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t now = ::send(peer, text.data() + sent, text.size() - sent, MSG_NOSIGNAL);
    if (now > 0) {
      sent += static_cast<std::size_t>(now);
    } else if (errno == EAGAIN) {
      if (!wait_for(peer, POLLOUT, kPatienceMs)) return false;
    } else if (errno != EINTR) {
      return false;
    }
  }
  return true;
}

}  // namespace holdfast::history
