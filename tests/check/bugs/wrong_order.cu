// Kind: wrong order. A transfer changes the first account before the undo log is valid, so a crash
// in between leaves a change that nothing can take back.
//
// In PMDK's terms, a store before the TX_ADD of what it overwrites, which PMTest (ASPLOS '19) and
// XFDetector (ASPLOS '20) check for. GPM (ASPLOS '22) section 5.2 logs first for the same reason.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

constexpr std::uint64_t kBoth = 200;

struct Bank {
  alignas(64) std::uint64_t moved[2];  // out of account 0, and into account 1
  alignas(64) std::uint64_t old[2];
  alignas(64) std::uint64_t logged;
};

__device__ void log_old(Bank* bank, std::uint64_t first, std::uint64_t second) {
  bank->old[0] = first;
  bank->old[1] = second;
  ofence();
  bank->logged = 1;  // BUG: lost
  persist();
}

template <bool kFixed>
__global__ void transfer(Bank* bank, std::uint64_t amount) {
  const std::uint64_t first = bank->moved[0];
  const std::uint64_t second = bank->moved[1];
  if (kFixed) log_old(bank, first, second);
  bank->moved[0] = first + amount;  // BUG: kept
  if (!kFixed) log_old(bank, first, second);
  bank->moved[1] = second + amount;
  persist();
  bank->logged = 0;
  persist();
}

__global__ void undo(Bank* bank) {
  if (bank->logged == 0) return;
  bank->moved[0] = bank->old[0];
  bank->moved[1] = bank->old[1];
  persist();
  bank->logged = 0;
  persist();
}

template <bool kFixed>
void run(Stream& stream, Bank* bank) {
  launch(stream, dim3(1), dim3(1), transfer<kFixed>, bank, kBoth / 2);
}

void recover(Stream& stream, Bank* bank) { launch(stream, dim3(1), dim3(1), undo, bank); }

std::string verify(const Bank& bank, const check::History& history) {
  if (bank.moved[0] != bank.moved[1]) return "money was made or lost";
  return history.acknowledged == 0 || bank.moved[0] != 0 ? "" : "the transfer is gone";
}

}  // namespace

check::Program wrong_order(bool fixed) {
  return make_program<Bank>("wrong_order", {fixed ? run<true> : run<false>, recover, verify});
}

}  // namespace holdfast::test
