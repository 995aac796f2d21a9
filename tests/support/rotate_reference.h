// SPDX-License-Identifier: Apache-2.0
// Rotation by the book, in long double, one pair after another; and tensors in any storage.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "posenc/rotary/plan.h"

namespace posenc::test {

inline double read_element(const void* p, DType t, Index i) {
  if (t == DType::f64) return static_cast<const double*>(p)[i];
  if (t == DType::f32) return static_cast<double>(static_cast<const float*>(p)[i]);
  const std::uint16_t h = static_cast<const std::uint16_t*>(p)[i];
  if (t == DType::bf16)
    return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(h) << 16));
  const int e = (h >> 10) & 31, m = h & 1023;
  const double v = e == 0    ? std::ldexp(m, -24)
                   : e == 31 ? (m ? NAN : INFINITY)
                             : std::ldexp(1024 + m, e - 25);
  return h & 0x8000 ? -v : v;
}
// Only for values that the type holds exactly.
inline void write_element(void* p, DType t, Index i, double x) {
  if (t == DType::f64) static_cast<double*>(p)[i] = x;
  if (t == DType::f32) static_cast<float*>(p)[i] = static_cast<float>(x);
  if (t == DType::bf16)
    static_cast<std::uint16_t*>(p)[i] =
        static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(x)) >> 16);
  if (t != DType::f16) return;
  int e = 0;
  const double m = std::frexp(std::fabs(x), &e);
  std::uint16_t h = x < 0 ? 0x8000 : 0;
  if (m != 0)
    h = static_cast<std::uint16_t>(h | ((e + 14) << 10) |
                                   (static_cast<int>(std::ldexp(m, 11)) - 1024));
  static_cast<std::uint16_t*>(p)[i] = h;
}

// How a tensor [batch, tokens, heads, dim] lies in memory.
struct Storage {
  std::string name;
  Index batch_stride, token_stride, head_stride, dim_stride, first, size;
};
inline std::vector<Storage> storages(Index b, Index t, Index h, Index d) {
  std::vector<Storage> r;
  r.push_back({"bthd", t * h * d, h * d, d, 1, 0, b * t * h * d});
  r.push_back({"bhtd", t * h * d, d, t * d, 1, 0, b * t * h * d});
  r.push_back({"tbhd", h * d, b * h * d, d, 1, 0, b * t * h * d});
  r.push_back({"thbd", d, b * h * d, b * d, 1, 0, b * t * h * d});
  r.push_back({"htbd", d, b * d, t * b * d, 1, 0, b * t * h * d});
  r.push_back({"hbtd", t * d, d, b * t * d, 1, 0, b * t * h * d});
  const Index packed = (h + 4) * d;  // as q in [.., q | k | v, ..], with one element of padding
  r.push_back({"packed", t * packed + 1, packed, d, 1, 2 * d, b * (t * packed + 1)});
  r.push_back({"padded heads", t * h * (d + 3), h * (d + 3), d + 3, 1, 1, b * t * h * (d + 3)});
  r.push_back({"backward", -t * h * d, -h * d, -d, 1, b * t * h * d - d, b * t * h * d});
  r.push_back({"channels apart", 2 * t * h * d, 2 * h * d, 2 * d, 2, 0, 2 * b * t * h * d});
  r.push_back({"channels backward", t * h * d, h * d, d, -1, d - 1, b * t * h * d});
  r.push_back({"channels first", t * h * d, 1, t * d, t, 0, b * t * h * d});
  return r;
}

// Values in dense order [batch, tokens, heads, dim] in some storage between guards.
class Tensor {
 public:
  static constexpr Index kGuard = 96;
  Tensor(DType type, Index b, Index t, Index h, Index d, const Storage& s)
      : type_(type), b_(b), t_(t), h_(h), d_(d), s_(s) {
    bytes_.assign(static_cast<std::size_t>((s.size + 2 * kGuard) * size_of(type)) + 64,
                  std::byte{0xa5});
    // 16 bytes past a cache line, as malloc gives
    const auto at = reinterpret_cast<std::uintptr_t>(bytes_.data());
    shift_ = static_cast<Index>((64 - at % 64 + 16) % 64);
  }
  Heads heads() const {
    Heads r;
    r.data = const_cast<std::byte*>(origin()) + s_.first * size_of(type_);
    r.batch = b_, r.tokens = t_, r.heads = h_, r.dim = d_, r.dtype = type_;
    r.batch_stride = s_.batch_stride, r.token_stride = s_.token_stride;
    r.head_stride = s_.head_stride, r.dim_stride = s_.dim_stride;
    return r;
  }
  template <class F>
  void each(F&& f) const {
    Index dense = 0;
    for (Index b = 0; b < b_; ++b)
      for (Index t = 0; t < t_; ++t)
        for (Index h = 0; h < h_; ++h)
          for (Index d = 0; d < d_; ++d)
            f(dense++, s_.first + b * s_.batch_stride + t * s_.token_stride + h * s_.head_stride +
                           d * s_.dim_stride);
  }
  void fill(const std::vector<double>& dense) {
    each([&](Index i, Index at) {
      write_element(const_cast<std::byte*>(origin()), type_, at,
                    dense[static_cast<std::size_t>(i)]);
    });
  }
  std::vector<double> values() const {
    std::vector<double> r;
    each([&](Index, Index at) { r.push_back(read_element(origin(), type_, at)); });
    return r;
  }
  // Everything that is no element of the tensor is as it was.
  bool guarded() const {
    std::vector<bool> mine(bytes_.size());
    const auto size = static_cast<std::size_t>(size_of(type_));
    const auto start = static_cast<std::size_t>(origin() - bytes_.data());
    each([&](Index, Index at) {
      for (std::size_t k = 0; k < size; ++k)
        mine[start + static_cast<std::size_t>(at) * size + k] = true;
    });
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      if (!mine[i] && bytes_[i] != std::byte{0xa5}) return false;
    return true;
  }

 private:
  const std::byte* origin() const { return bytes_.data() + shift_ + kGuard * size_of(type_); }
  DType type_;
  Index b_, t_, h_, d_, shift_ = 0;
  Storage s_;
  std::vector<std::byte> bytes_;
};

// y = M x for one pair: y_a = aa x_a + ab x_b, y_b = ba x_a + bb x_b.
struct Matrix {
  long double aa = 1, ab = 0, ba = 0, bb = 1;
};
// The map of a pair by cosines and sines that need be no rotation, and what a sense makes of it.
inline Matrix sense_of(Matrix m, RotateMode sense) {
  if (sense == RotateMode::gradient) return {m.aa, m.ba, m.ab, m.bb};
  const long double det = m.aa * m.bb - m.ab * m.ba;
  if (sense == RotateMode::inverse) return {m.bb / det, -m.ab / det, -m.ba / det, m.aa / det};
  return m;
}

// Turns one head (dense); `matrix(k)` is the map of pair k.
template <class F>
void turn_head(const RotaryBlock& block, RotateMode sense, const double* x, long double* y,
               F&& matrix) {
  const Index n = block.pairs();
  const bool zipped = block.pairing == Pairing::interleaved;
  const bool moved = block.output_order == OutputOrder::even_then_odd;
  for (Index k = 0; k < n; ++k) {
    const Index za = block.offset + 2 * k, zb = za + 1, ha = block.offset + k, hb = ha + n;
    const bool back = sense == RotateMode::gradient || sense == RotateMode::inverse;
    const bool in_zipped = zipped && (!moved || sense == RotateMode::forward);
    const bool out_zipped = zipped && (!moved || back);
    const long double a = x[in_zipped ? za : ha], b = x[in_zipped ? zb : hb];
    const Matrix m = matrix(k);
    y[out_zipped ? za : ha] = m.aa * a + m.ab * b;
    y[out_zipped ? zb : hb] = m.ba * a + m.bb * b;
  }
}

}  // namespace posenc::test
