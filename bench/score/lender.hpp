// A process that lends memory of a GPU, as a partner's does: this program, started anew.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace score {

// What `score_bench --disk=PATH --bytes=N lend` does: lends until its standard input ends.
void lend(const std::string& path, std::uint64_t bytes);

class Lender {
 public:
  // On the second GPU in sight, or on the only one. Throws io if it does not begin to lend.
  Lender(const std::string& path, std::uint64_t bytes);
  ~Lender();
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;

 private:
  pid_t process_ = -1;
  int input_ = -1;  // of the process; it ends with this
};

}  // namespace score
