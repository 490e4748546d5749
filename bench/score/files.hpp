// Files as the baselines use them: moved by O_DIRECT where the file system has it, over a few
// threads, which is what a disk takes to be as fast as it can be. Throws holdfast::Error (io).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace score {

inline constexpr std::uint64_t kFilePage = 4096;
constexpr std::uint64_t file_rounded(std::uint64_t bytes) {
  return (bytes + kFilePage - 1) / kFilePage * kFilePage;
}

class DirectFile {
 public:
  // Makes the file, or opens the one that is there.
  explicit DirectFile(std::string path);
  ~DirectFile();
  DirectFile(const DirectFile&) = delete;
  DirectFile& operator=(const DirectFile&) = delete;

  // A piece of the file and of memory. All three are multiples of kFilePage.
  struct Piece {
    std::byte* memory;
    std::uint64_t bytes;
    std::uint64_t offset;
  };
  void write(const std::vector<Piece>& pieces) { move(pieces, true); }
  void read(const std::vector<Piece>& pieces) { move(pieces, false); }
  void sync();

 private:
  void move(const std::vector<Piece>& pieces, bool writes);
  void move_piece(const Piece& piece, bool writes);

  const std::string path_;
  int fd_ = -1;
};

}  // namespace score
