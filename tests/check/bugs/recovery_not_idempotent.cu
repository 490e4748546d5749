// Kind: recovery that is not idempotent. It applies a logged difference and then clears the log; a
// second crash in between applies the difference twice.
//
// Bugs that are in the stage after the failure are what XFDetector (ASPLOS '20) is about; Jaaru
// (ASPLOS '21), too, lets recovery itself crash.
#include "bugs.hpp"
#include "holdfast/kernel.hpp"

namespace holdfast::test {
namespace {

struct Account {
  alignas(64) std::uint64_t balance;
  alignas(64) std::uint64_t logged;  // fixed: the balance to be, plus one; else the difference
};

constexpr std::uint64_t kDeposit = 5;

template <bool kFixed>
__global__ void apply(Account* account) {
  const std::uint64_t logged = account->logged;
  if (logged == 0) return;
  account->balance = kFixed ? logged - 1 : account->balance + logged;  // BUG: kept
  persist();
  account->logged = 0;
  persist();
}

template <bool kFixed>
__global__ void log_deposit(Account* account) {
  account->logged = kFixed ? account->balance + kDeposit + 1 : kDeposit;
  persist();
}

template <bool kFixed>
void recover(Stream& stream, Account* account) {
  launch(stream, dim3(1), dim3(1), apply<kFixed>, account);
}

// The logged deposit is applied by whoever opens the account next.
template <bool kFixed>
void run(Stream& stream, Account* account) {
  launch(stream, dim3(1), dim3(1), log_deposit<kFixed>, account);
}

std::string verify(const Account& account, const check::History& history) {
  const std::uint64_t balance = account.balance;
  if (balance == 0) return history.acknowledged == 0 ? "" : "the deposit is gone";
  return balance == kDeposit ? "" : "the deposit was made twice";
}

}  // namespace

check::Program recovery_not_idempotent(bool fixed) {
  return fixed
             ? make_program<Account>("recovery_not_idempotent", {run<true>, recover<true>, verify})
             : make_program<Account>("recovery_not_idempotent",
                                     {run<false>, recover<false>, verify});
}

}  // namespace holdfast::test
