// SPDX-License-Identifier: Apache-2.0
// Multiply-adds of one thread for each instruction set that this machine and build can run.
#pragma once
#include <cstddef>
#include <string>
#include <vector>

namespace posenc::bench {

struct MultiplyAdds {
  std::string isa;
  std::size_t floats = 1;  // of a vector
  // At least n multiply-adds on numbers around `start`; returns something that depends on all.
  double (*f32)(std::size_t n, double start) = nullptr;
  double (*f64)(std::size_t n, double start) = nullptr;
};
std::vector<MultiplyAdds> multiply_adds();  // worst first, never empty
MultiplyAdds multiply_adds_in_use();        // of active_isa(); of a shared library: of the best

}  // namespace posenc::bench
