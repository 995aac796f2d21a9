// SPDX-License-Identifier: Apache-2.0
// The machine's own limits with the instruction set in use (active_isa), by loops that anybody would write.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "multiply_adds.h"
#include "plain_loops.h"

namespace posenc::bench {

// 64-byte aligned, touched, huge pages where the system gives them.
class Buffer {
 public:
  explicit Buffer(std::size_t bytes);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};
using SharedBuffer = std::shared_ptr<Buffer>;
SharedBuffer buffer(std::size_t bytes);

void copy_libc(void* to, const void* from, std::size_t bytes);
double fused_multiply_adds_f64(std::size_t n);  // does n of them, returns something

// Which of the three copies is fastest here for this size, found once.
Copy best_copy(std::size_t bytes);
Fill best_fill(std::size_t bytes);

struct Limit {
  std::string name;
  double value = 0;  // GB/s, fma: GFLOP/s
};
// Floating-point operations a second in f32, two a multiply-add: the best of ten samples that together take about
// `seconds`.
double multiply_adds_per_second(const MultiplyAdds&, double seconds);
// fma_f32 is that of the instruction set in use, fma_f32_NAME of each.
std::vector<Limit> machine_limits();
std::string cpu_name();

}  // namespace posenc::bench
