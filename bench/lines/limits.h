// SPDX-License-Identifier: Apache-2.0
// The machine's own limits, by loops that anybody would write.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "multiply_adds.h"
#include "posenc/core/dtype.h"

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

void scale_in_place(float* x, std::size_t n, float factor);  // x *= factor
void copy_plain(float* to, const float* from, std::size_t n);
void copy_streaming(float* to, const float* from, std::size_t n);  // non-temporal stores
void copy_libc(void* to, const void* from, std::size_t bytes);
void fill_plain(float* to, std::size_t n, float value);
void fill_streaming(float* to, std::size_t n, float value);
float read_all(const float* from, std::size_t n);
float read_ahead(const float* from, std::size_t n);  // with a prefetch
double fused_multiply_adds_f64(std::size_t n);       // does n of them, returns something

// Rotary, half-split, one token: the loop every engine starts from (cos and sin given).
void plain_rotation(float* q, int q_heads, float* k, int k_heads, int pairs, const float* cos,
                    const float* sin);

// The same of `tokens` tokens in memory, 64 pairs, rows of 64 cosines and sines; whole heads one
// behind the other, with a prefetch for writing some KiB ahead. The plainest loop for large tensors.
void plain_rotation_f32(float* x, Index tokens, Index heads, const float* cos, const float* sin);
void plain_rotation_bf16(std::uint16_t* x, Index tokens, Index heads, const float* cos,
                         const float* sin);
// Needs has_f16c().
void plain_rotation_f16(std::uint16_t* x, Index tokens, Index heads, const float* cos,
                        const float* sin);
bool has_f16c();

// Which of the three copies is fastest here for this size, found once.
using Copy = void (*)(float*, const float*, std::size_t);
Copy best_copy(std::size_t bytes);
using Fill = void (*)(float*, std::size_t, float);
Fill best_fill(std::size_t bytes);

struct Limit {
  std::string name;
  double value = 0;  // GB/s, fma: GFLOP/s
};
// Floating-point operations a second in f32, two a multiply-add: the best of ten samples that together take about
// `seconds`.
double multiply_adds_per_second(const MultiplyAdds&, double seconds);
// fma_f32 is that of the best instruction set, fma_f32_NAME of each.
std::vector<Limit> machine_limits();
std::string cpu_name();

}  // namespace posenc::bench
