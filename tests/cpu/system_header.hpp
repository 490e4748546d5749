// What standard headers do with names that CUDA has, too: libstdc++ 13's <memory> has such
// attributes.
#pragma once
#pragma GCC system_header

namespace holdfast::test {

template <typename T>
class Counted {
 public:
  __attribute__((__noinline__)) T release() { return --count_; }
  __attribute__((__noinline__, __cold__)) T acquire() { return ++count_; }

 private:
  T count_ = 0;
};

}  // namespace holdfast::test
