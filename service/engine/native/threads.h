// How operators share their work.

#pragma once

#include <cstddef>

namespace trifold {

// Calls run(data, i) for every i below count, on as many threads as there are.
struct Threads {
  virtual void ForEach(size_t count, void (*run)(void* data, size_t i), void* data) const = 0;
};

}  // namespace trifold
