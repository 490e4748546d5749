// What maps say of each operation of a batch.
#pragma once

#include <cstdint>

namespace holdfast {

// What became of an operation; of a LogMap (log_map.hpp) 1 to 6.
enum class MapStatus : std::uint8_t {
  inserted = 1,  // its key was not there, and is
  assigned = 2,  // its key was there, and has its value now
  kept = 3,      // its key was there, and insert(), find_or_insert() or a lookup left it as it was
  erased = 4,    // its key was there
  absent = 5,    // its key was not there (assign, erase, a lookup)
  superseded = 6,  // a later operation of the batch has its key, and counts in its place
  full = 7,        // not done: all slots that its key can have are taken, by keys that cannot move
  no_value = 8,    // not done: there is no place for one more value
  refused = 9,     // not done: in a kernel, the key or the value is one that cannot be stored; of a
                   // BytesMap (bytes_map.hpp), another key has the digest of its key
};

}  // namespace holdfast
