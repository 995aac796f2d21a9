// SPDX-License-Identifier: Apache-2.0
#include "rotary/pope_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <vector>

#include "core/element.h"
#include "core/parallel.h"
#include "kernels/polar.h"

namespace posenc::inline v0::detail {
namespace {

constexpr double kTwoPi = 2 * std::numbers::pi;
constexpr Index kSmall = 1 << 12;  // elements that one thread does sooner than two

// What is made of the bias once a call; rows of `pitch`, one a head.
struct Bias {
  Index pitch = 0;
  std::vector<double> cos, sin;
  std::vector<double> open, sum;  // where the clamp lets a gradient through, and that gradient

  explicit Bias(const PopeCall& c) {
    if (c.bias == nullptr || c.bias->empty()) return;
    const Index heads = c.in->heads, channels = c.turns->pairs;
    const bool sums = c.d_bias != nullptr && !c.d_bias->empty();
    pitch = channels + kRowPadding;
    const auto size = static_cast<std::size_t>(heads * pitch);
    cos.resize(size), sin.resize(size);
    if (sums) open.resize(size), sum.resize(size);
    for (Index h = 0; h < heads; ++h)
      for (Index i = 0; i < channels; ++i) {
        const ConstTensorView& v = *c.bias;
        const double raw = float_element(v.data, v.dtype, h * v.stride[0] + i * v.stride[1]);
        const double angle = std::clamp(raw, -kTwoPi, 0.0);
        const auto at = static_cast<std::size_t>(h * pitch + i);
        cos[at] = std::cos(angle), sin[at] = std::sin(angle);
        if (!sums) continue;
        open[at] = raw <= -kTwoPi || raw >= 0 ? 0 : 1;
        sum[at] = *place(*c.d_bias, h, i);
      }
  }
  static double* place(const TensorView& v, Index h, Index i) {
    return static_cast<double*>(v.data) + h * v.stride[0] + i * v.stride[1];
  }
  void write_sums(const PopeCall& c) const {
    if (sum.empty()) return;
    for (Index h = 0; h < c.in->heads; ++h)
      for (Index i = 0; i < c.turns->pairs; ++i)
        *place(*c.d_bias, h, i) = sum[static_cast<std::size_t>(h * pitch + i)];
  }
};

struct Job {
  const PopeCall& call;
  const RowKernels& rows;
  const PolarKernels& polar;
  Bias& bias;
};

// Copies of `n` elements that stand apart, as bits.
template <class T>
void gather(const void* from, Index at, Index stride, Index n, void* to) noexcept {
  const T* source = static_cast<const T*>(from) + at;
  for (Index i = 0; i < n; ++i) static_cast<T*>(to)[i] = source[i * stride];
}
template <class T>
void scatter(const void* from, Index n, void* to, Index at, Index stride) noexcept {
  T* target = static_cast<T*>(to) + at;
  for (Index i = 0; i < n; ++i) target[i * stride] = static_cast<const T*>(from)[i];
}

// n channels of a view one behind the other: where they lie, or a buffer of them.
struct Channels {
  alignas(64) std::byte buffer[kRowChunk * 8];

  const void* read(const ConstHeads& h, Index at, Index n) noexcept {
    if (h.dim_stride == 1) return static_cast<const std::byte*>(h.data) + at * size_of(h.dtype);
    const Index size = size_of(h.dtype);
    (size == 8   ? gather<double>
     : size == 4 ? gather<float>
                 : gather<std::uint16_t>)(h.data, at, h.dim_stride, n, buffer);
    return buffer;
  }
  void* begin(const Heads& h, Index at) noexcept {
    return h.dim_stride == 1 ? static_cast<std::byte*>(h.data) + at * size_of(h.dtype) : buffer;
  }
  void end(const Heads& h, Index at, Index n) const noexcept {
    if (h.dim_stride == 1) return;
    const Index size = size_of(h.dtype);
    (size == 8   ? scatter<double>
     : size == 4 ? scatter<float>
                 : scatter<std::uint16_t>)(buffer, n, h.data, at, h.dim_stride);
  }
};

Index row_of(const ConstHeads& h, Index batch, Index token, Index head, Index channel) noexcept {
  return batch * h.batch_stride + token * h.token_stride + head * h.head_stride +
         channel * h.dim_stride;
}

// A token at a time, channels [first, first + n) of it: cosine and sine serve all its heads.
struct Worker {
  const Job& job;
  const PopeCall& call;
  Index first = 0, n = 0;
  // Left as they are: clearing them would cost as much as a token.
  alignas(64) std::uint64_t phase[kRowChunk + kRowPadding];
  alignas(64) double c[kRowChunk + kRowPadding], s[kRowChunk + kRowPadding];
  Channels x, y_cos, y_sin, d_x;

  explicit Worker(const Job& j) noexcept : job(j), call(j.call) {}

  void make_angles(Index batch, Index token) noexcept {
    const Positions& p = *call.positions;
    std::memset(phase, 0, static_cast<std::size_t>(n + kRowPadding) * sizeof *phase);
    add_phases(job.rows, *call.turns, p, batch * p.batch_stride + token * p.token_stride, 0, first,
               n, call.in->dtype == DType::f64 ? kNear64 : kNear32, phase);
    job.rows.sincos(phase, n, 1.0, c, s);
  }

  const double* of_head(const std::vector<double>& v, Index head) const noexcept {
    return v.empty() ? nullptr : v.data() + head * job.bias.pitch + first;
  }

  void forward(Index batch, Index token, Index head) noexcept {
    const Heads& y = *call.out;
    const Index at = row_of(y, batch, token, head, first);
    const Index other = at + call.turns->pairs * y.dim_stride;
    const void* from = x.read(*call.in, row_of(*call.in, batch, token, head, first), n);
    job.polar.row({from, c, s, of_head(job.bias.cos, head), of_head(job.bias.sin, head), n,
                   y_cos.begin(y, at), y_sin.begin(y, other)});
    y_cos.end(y, at, n), y_sin.end(y, other, n);
  }

  void backward(Index batch, Index token, Index head) noexcept {
    const ConstHeads& y = *call.d_out;
    const Heads& d = *call.d_in;
    const Index at = row_of(y, batch, token, head, first);
    const Index to = row_of(d, batch, token, head, first);
    const void* from = x.read(*call.in, row_of(*call.in, batch, token, head, first), n);
    const void* g_cos = y_cos.read(y, at, n);
    const void* g_sin = y_sin.read(y, at + call.turns->pairs * y.dim_stride, n);
    double* sum =
        job.bias.sum.empty() ? nullptr : job.bias.sum.data() + head * job.bias.pitch + first;
    job.polar.gradient({from, g_cos, g_sin, c, s, of_head(job.bias.cos, head),
                        of_head(job.bias.sin, head), n, d_x.begin(d, to),
                        of_head(job.bias.open, head), sum});
    d_x.end(d, to, n);
  }

  void token(Index batch, Index token, Index head, Index end) noexcept {
    for (first = 0; first < call.turns->pairs; first += kRowChunk) {
      n = std::min(kRowChunk, call.turns->pairs - first);
      make_angles(batch, token);
      for (Index h = head; h < end; ++h)
        call.d_in != nullptr ? backward(batch, token, h) : forward(batch, token, h);
    }
  }
};

}  // namespace

void pope_rows(const PopeCall& call, const Executor& executor) {
  const ConstHeads& h = *call.in;
  const Isa isa = active_isa();
  Bias bias(call);
  const Job job{call, row_kernels(isa), polar_kernels(isa, h.dtype), bias};
  const Index rows = h.batch * h.tokens;
  const bool by_heads = !bias.sum.empty() || rows < executor.concurrency;
  const Index count = by_heads ? h.heads : rows;
  const Index most = rows * h.heads * h.dim < kSmall ? 1 : count;
  // Every number is made of its own alone, and a head's sum meets its tokens in order.
  parallel_for(executor, count, most, [&](Index low, Index high) noexcept {
    Worker worker(job);
    if (by_heads)
      for (Index r = 0; r < rows; ++r) worker.token(r / h.tokens, r % h.tokens, low, high);
    else
      for (Index r = low; r < high; ++r) worker.token(r / h.tokens, r % h.tokens, 0, h.heads);
  });
  bias.write_sums(call);
}

}  // namespace posenc::v0::detail
