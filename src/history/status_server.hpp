// Tells other processes what goes on in this one: a Unix socket in the file system. Whoever
// connects is sent a text, and the connection ends.
//
// Nothing is done, and nothing written, unless somebody asks; and what a killed process leaves is a
// socket that refuses, not a text that was true once. Only this user and root are answered.
//
// Tests: status_server_test, tests/python/test_history_live.py.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <thread>

#include "core/files.hpp"

namespace holdfast::history {

class StatusServer {
 public:
  // `answer` is called on the server's thread; what it throws leaves the asker without an answer.
  // `takes_over`: a socket that stands there is replaced, since its maker must be gone. Throws
  // in_use (a process answers there), already_exists (something that is no socket), not_found,
  // permission, invalid_argument (a name too long), io.
  StatusServer(const std::string& path, bool takes_over, std::function<std::string()> answer);
  ~StatusServer();  // the socket goes
  StatusServer(const StatusServer&) = delete;
  StatusServer& operator=(const StatusServer&) = delete;

 private:
  void bind_socket(bool takes_over);
  void run() noexcept;
  void serve(int peer) const;
  bool send_text(int peer, const std::string& text) const;
  // False: the server is to end, or it took too long.
  bool wait_for(int fd, short events, int milliseconds) const;

  const std::string path_;
  const std::function<std::string()> answer_;
  core::UniqueFd folder_, listener_, stop_;
  ino_t inode_ = 0;  // of the socket
  std::thread thread_;
};

}  // namespace holdfast::history
