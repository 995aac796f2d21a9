// SPDX-License-Identifier: Apache-2.0
// Rotation on the device, table-free or from the caller's rows. One thread owns 16 bytes of a pair's members (or one pair
// where strides or alignment forbid) at one token and turns them in several heads: the phase is
// formed once for all of them.
#include <algorithm>
#include <stdexcept>
#include <string>

#include "cuda/element.cuh"
#include "cuda/phase.cuh"
#include "cuda/rotate.h"
#include "cuda/rows.cuh"
#include "posenc/core/error.h"
#include "positions/shared_row.h"

namespace posenc::inline v0::cuda {
namespace {

using detail::Gap;
using detail::RotateCall;

constexpr int kThreads = 256;
constexpr Index kMaxBlocks = 1 << 30;
constexpr std::size_t kShared = 48 << 10;  // every device has it without asking

// Where the pairs of a head stand: pair k's members at k * step and member + k * step.
struct PairLayout {
  Index step, member;
};

// Everything of one launch, by value: one tensor, one block.
struct Job {
  RotaryTables t;
  Heads in, out;
  Positions p;
  PairLayout from, to;
  double cosine, sine;  // what the cosine and the sine are multiplied by
  double decay;         // xPos: 1 for q, -1 for k, turned round by inverse; 0: none
  double center;
  Index split;  // heads are shared by this many threads
  Rows rows;
};

// What leaves in another order than it came: even_then_odd.
PairLayout layout_of(const RotaryTables& t, bool output, RotateMode mode) {
  bool interleaved = t.pairing == Pairing::interleaved;
  if (t.output_order == OutputOrder::even_then_odd) {
    const bool back = mode == RotateMode::gradient || mode == RotateMode::inverse;
    interleaved = mode != RotateMode::shift && output == back;
  }
  return interleaved ? PairLayout{2, 1} : PairLayout{1, t.pairs};
}

template <bool kRows, class C>
__device__ __forceinline__ void coefficients(const Job& j, Index pair, Index head, Index batch,
                                             Index token, C& c, C& s) {
  if constexpr (kRows) {
    row_coefficients(j.rows, pair, batch, token, c, s);
    s *= static_cast<C>(j.sine);
    return;
  }
  const Index at = (j.t.heads > 1 ? head * j.t.axes : 0) * j.t.pairs + pair;
  sine_and_cosine(turn_of<C>(j.t, at, j.p, batch, token), c, s);
  c *= static_cast<C>(j.cosine);
  s *= static_cast<C>(j.sine);
  if (j.decay == 0) return;
  const Position x = read_position(j.p, batch, token, 0);
  const double real = static_cast<double>(static_cast<std::int64_t>(x.whole)) + x.fraction;
  const auto grow =
      static_cast<C>(exp2(j.decay * j.t.log2_decay[pair] * (real - j.center) / j.t.decay_scale));
  c *= grow;
  s *= grow;
}

template <class C>
__device__ __forceinline__ void turn(C a, C b, C c, C s, C& ya, C& yb) {
  ya = fma(-b, s, a * c);
  yb = fma(a, s, b * c);
}

__device__ __forceinline__ Index first(const Heads& h, Index batch, Index token) {
  return batch * h.batch_stride + token * h.token_stride;
}

// A pair a thread: any strides, both pairings, another order in the output.
template <class T, bool kRows>
__global__ void __launch_bounds__(kThreads) turn_pairs(Job j) {
  using C = Compute<T>;
  const Index work = j.in.batch * j.in.tokens * j.split * j.t.pairs;
  for (Index w = blockIdx.x * Index{kThreads} + threadIdx.x; w < work;
       w += Index{gridDim.x} * kThreads) {
    const Index pair = w % j.t.pairs, part = w / j.t.pairs % j.split;
    const Index row = w / j.t.pairs / j.split;
    const Index batch = row / j.in.tokens, token = row % j.in.tokens;
    C c, s;
    if (j.t.heads == 1) coefficients<kRows>(j, pair, 0, batch, token, c, s);
    const T* x = static_cast<const T*>(j.in.data) + first(j.in, batch, token);
    T* y = static_cast<T*>(j.out.data) + first(j.out, batch, token);
    for (Index head = part; head < j.in.heads; head += j.split) {
      if (j.t.heads > 1) coefficients<kRows>(j, pair, head, batch, token, c, s);
      const T* xh = x + head * j.in.head_stride + j.t.offset * j.in.dim_stride;
      T* yh = y + head * j.out.head_stride + j.t.offset * j.out.dim_stride;
      const C a = widen(xh[pair * j.from.step * j.in.dim_stride]);
      const C b = widen(xh[(j.from.member + pair * j.from.step) * j.in.dim_stride]);
      C ya, yb;
      turn(a, b, c, s, ya, yb);
      yh[pair * j.to.step * j.out.dim_stride] = narrow<T>(ya);
      yh[(j.to.member + pair * j.to.step) * j.out.dim_stride] = narrow<T>(yb);
    }
  }
}

// 16 bytes an access; channels contiguous and aligned, one spectrum for all heads.
template <class T, bool kInterleaved, bool kRows>
__global__ void __launch_bounds__(kThreads) turn_vectors(Job j) {
  using C = Compute<T>;
  constexpr int kSize = Vector<T>::kSize, kPairs = kInterleaved ? kSize / 2 : kSize;
  const Index vectors = j.t.pairs / kPairs;
  const Index work = j.in.batch * j.in.tokens * j.split * vectors;
  for (Index w = blockIdx.x * Index{kThreads} + threadIdx.x; w < work;
       w += Index{gridDim.x} * kThreads) {
    const Index pair = w % vectors * kPairs, part = w / vectors % j.split;
    const Index row = w / vectors / j.split;
    const Index batch = row / j.in.tokens, token = row % j.in.tokens;
    C c[kPairs], s[kPairs];
#pragma unroll
    for (int i = 0; i < kPairs; ++i) coefficients<kRows>(j, pair + i, 0, batch, token, c[i], s[i]);
    const Index at = j.t.offset + (kInterleaved ? 2 * pair : pair);
    const T* x = static_cast<const T*>(j.in.data) + first(j.in, batch, token) + at;
    T* y = static_cast<T*>(j.out.data) + first(j.out, batch, token) + at;
    for (Index head = part; head < j.in.heads; head += j.split) {
      const T* xh = x + head * j.in.head_stride;
      T* yh = y + head * j.out.head_stride;
      Vector<T> a = load(xh);
      if constexpr (kInterleaved) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          C ya, yb;
          turn<C>(widen(a.at[2 * i]), widen(a.at[2 * i + 1]), c[i], s[i], ya, yb);
          a.at[2 * i] = narrow<T>(ya);
          a.at[2 * i + 1] = narrow<T>(yb);
        }
        store(yh, a);
      } else {
        Vector<T> b = load(xh + j.t.pairs);
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
          C ya, yb;
          turn<C>(widen(a.at[i]), widen(b.at[i]), c[i], s[i], ya, yb);
          a.at[i] = narrow<T>(ya);
          b.at[i] = narrow<T>(yb);
        }
        store(yh, a);
        store(yh + j.t.pairs, b);
      }
    }
  }
}

// In place with another order in the output: a head's window goes through shared memory.
template <class T, bool kRows>
__global__ void __launch_bounds__(kThreads) turn_reordered(Job j) {
  using C = Compute<T>;
  extern __shared__ __align__(16) unsigned char shared[];
  T* window = reinterpret_cast<T*>(shared);
  const Index heads = j.in.batch * j.in.tokens * j.in.heads;
  for (Index w = blockIdx.x; w < heads; w += gridDim.x) {
    const Index head = w % j.in.heads, row = w / j.in.heads;
    const Index batch = row / j.in.tokens, token = row % j.in.tokens;
    const T* x = static_cast<const T*>(j.in.data) + first(j.in, batch, token) +
                 head * j.in.head_stride + j.t.offset * j.in.dim_stride;
    T* y = static_cast<T*>(j.out.data) + first(j.out, batch, token) + head * j.out.head_stride +
           j.t.offset * j.out.dim_stride;
    for (Index pair = threadIdx.x; pair < j.t.pairs; pair += kThreads) {
      C c, s, ya, yb;
      coefficients<kRows>(j, pair, head, batch, token, c, s);
      turn<C>(widen(x[pair * j.from.step * j.in.dim_stride]),
              widen(x[(j.from.member + pair * j.from.step) * j.in.dim_stride]), c, s, ya, yb);
      window[pair * j.to.step] = narrow<T>(ya);
      window[j.to.member + pair * j.to.step] = narrow<T>(yb);
    }
    __syncthreads();
    for (Index i = threadIdx.x; i < 2 * j.t.pairs; i += kThreads)
      y[i * j.out.dim_stride] = window[i];
    __syncthreads();
  }
}

// Channels that no block turns, when the output is another tensor.
template <class T>
__global__ void __launch_bounds__(kThreads) copy_channels(Heads in, Heads out, Gap gap) {
  const Index width = gap.end - gap.begin, work = in.batch * in.tokens * in.heads * width;
  for (Index w = blockIdx.x * Index{kThreads} + threadIdx.x; w < work;
       w += Index{gridDim.x} * kThreads) {
    const Index channel = gap.begin + w % width, head = w / width % in.heads;
    const Index row = w / width / in.heads;
    const Index batch = row / in.tokens, token = row % in.tokens;
    static_cast<T*>(
        out.data)[first(out, batch, token) + head * out.head_stride + channel * out.dim_stride] =
        static_cast<const T*>(
            in.data)[first(in, batch, token) + head * in.head_stride + channel * in.dim_stride];
  }
}

void check_launch(const char* what) {
  if (const cudaError_t e = cudaGetLastError(); e != cudaSuccess)
    throw std::runtime_error(std::string("[cuda] ") + what + ": " + cudaGetErrorString(e));
}

unsigned blocks_for(Index threads) {
  return static_cast<unsigned>(
      std::clamp((threads + kThreads - 1) / kThreads, Index{1}, kMaxBlocks));
}

// 16-byte accesses: contiguous channels, every head's window on a boundary of 16 bytes.
template <class T>
bool aligned(const Heads& h, Index channel) {
  constexpr Index size = sizeof(T), n = 16 / size;
  const auto address =
      reinterpret_cast<std::uintptr_t>(h.data) + static_cast<std::uintptr_t>(channel * size);
  return h.dim_stride == 1 && address % 16 == 0 && h.head_stride % n == 0 &&
         h.token_stride % n == 0 && h.batch_stride % n == 0;
}

template <class T, bool kRows>
void launch(Job j, cudaStream_t stream) {
  constexpr Index n = Vector<T>::kSize;
  const bool interleaved = j.from.step == 2, same_order = j.from.step == j.to.step;
  const Index pairs_each = interleaved ? n / 2 : n;
  if (!same_order && j.in.data == j.out.data) {
    const std::size_t bytes = static_cast<std::size_t>(2 * j.t.pairs) * sizeof(T);
    if (bytes > kShared)
      refuse("cuda", "even_then_odd in place needs a window of at most 48 KB",
             static_cast<Index>(bytes));
    const Index heads = j.in.batch * j.in.tokens * j.in.heads;
    turn_reordered<T, kRows>
        <<<static_cast<unsigned>(std::min(heads, kMaxBlocks)), kThreads, bytes, stream>>>(j);
    return check_launch("turn_reordered");
  }
  const bool vectors = same_order && j.t.heads == 1 && j.t.pairs % pairs_each == 0 &&
                       aligned<T>(j.in, j.t.offset) && aligned<T>(j.out, j.t.offset) &&
                       (interleaved || (aligned<T>(j.in, j.t.offset + j.t.pairs) &&
                                        aligned<T>(j.out, j.t.offset + j.t.pairs)));
  const Index items = vectors ? j.t.pairs / pairs_each : j.t.pairs;
  const Index rows = j.in.batch * j.in.tokens;
  // Few tokens: more threads a token, each forming the phase for fewer heads.
  constexpr Index enough = 1 << 17;
  j.split = std::clamp(enough / std::max(rows * items, Index{1}), Index{1}, j.in.heads);
  const unsigned blocks = blocks_for(rows * items * j.split);
  if (vectors && interleaved)
    turn_vectors<T, true, kRows><<<blocks, kThreads, 0, stream>>>(j);
  else if (vectors)
    turn_vectors<T, false, kRows><<<blocks, kThreads, 0, stream>>>(j);
  else
    turn_pairs<T, kRows><<<blocks, kThreads, 0, stream>>>(j);
  check_launch("turn");
}

Job job_of(const RotateCall& call, const RotaryTables& t, const Heads& in, const Heads& out,
           bool key) {
  Job j{};
  j.t = t;
  j.in = in;
  j.out = out;
  if (call.positions != nullptr) j.p = detail::shared_row(*call.positions);
  j.from = layout_of(t, false, call.mode);
  j.to = layout_of(t, true, call.mode);
  const bool back = call.mode == RotateMode::gradient || call.mode == RotateMode::inverse;
  double gain = t.gain;
  if (call.mode == RotateMode::inverse) gain = 1 / t.gain;
  if (call.mode == RotateMode::shift) gain = 1;
  j.cosine = gain;
  j.sine = (back ? -gain : gain) * t.direction;
  if (t.log2_decay != nullptr) j.decay = key != (call.mode == RotateMode::inverse) ? -1 : 1;
  j.center = call.mode == RotateMode::shift ? 0 : t.decay_center;
  return j;
}

template <class T>
void launch_job(Job j, const RotateCall& call, cudaStream_t stream) {
  if (call.rows->kind == detail::RowSource::Kind::none) return launch<T, false>(j, stream);
  j.rows = rows_of(*call.rows);
  j.sine = call.mode == RotateMode::gradient ? -1 : 1;
  launch<T, true>(j, stream);
}

template <class T>
void rotate_as(const RotateCall& call, cudaStream_t stream) {
  for (const bool key : {false, true}) {
    const Heads& in = key ? call.in->k : call.in->q;
    const Heads& out = key ? call.out->k : call.out->q;
    if (in.data == nullptr || in.batch * in.tokens * in.heads == 0) continue;
    if (in.data != out.data)
      for (std::int32_t g = 0; g < call.gap_count; ++g) {
        const Gap gap = call.gaps[g];
        const Index work = in.batch * in.tokens * in.heads * (gap.end - gap.begin);
        copy_channels<T><<<blocks_for(work), kThreads, 0, stream>>>(in, out, gap);
        check_launch("copy_channels");
      }
    for (std::int32_t b = 0; b < call.block_count; ++b)
      launch_job<T>(job_of(call, call.blocks[b], in, out, key), call, stream);
  }
}

}  // namespace

void rotate(const RotateCall& call, DType dtype, cudaStream_t stream) {
  if (call.rows->kind != detail::RowSource::Kind::none)
    check_rows(call);
  else if (call.positions == nullptr)
    refuse("cuda", "positions or rows of cosine and sine must be given");
  switch (dtype) {
    case DType::f64:
      return rotate_as<double>(call, stream);
    case DType::f32:
      return rotate_as<float>(call, stream);
    case DType::f16:
      return rotate_as<__half>(call, stream);
    case DType::bf16:
      return rotate_as<__nv_bfloat16>(call, stream);
    default:
      refuse_field("cuda", "dtype", "must be f64, f32, f16 or bf16", dtype_name(dtype));
  }
}

void* DeviceTables::upload(const void* host, std::size_t bytes) {
  if (host == nullptr || bytes == 0) return nullptr;
  void* device = nullptr;
  cudaError_t e = cudaMalloc(&device, bytes);
  if (e == cudaSuccess) {
    memory_.push_back(device);
    e = cudaMemcpy(device, host, bytes, cudaMemcpyHostToDevice);
  }
  if (e != cudaSuccess) {
    release();
    throw std::runtime_error(std::string("[cuda] tables: ") + cudaGetErrorString(e));
  }
  return device;
}

DeviceTables::DeviceTables(std::span<const RotaryTables> host) : tables_(host.begin(), host.end()) {
  memory_.reserve(6 * tables_.size());
  for (RotaryTables& t : tables_) {
    const auto n = static_cast<std::size_t>(t.heads * t.axes * t.pairs);
    const auto pairs = static_cast<std::size_t>(t.pairs);
    t.turns_hi = static_cast<const std::uint32_t*>(upload(t.turns_hi, n * 4));
    t.turns_lo = static_cast<const std::uint32_t*>(upload(t.turns_lo, n * 4));
    t.wide_hi = static_cast<const std::uint64_t*>(upload(t.wide_hi, n * 8));
    t.wide_lo = static_cast<const std::uint64_t*>(upload(t.wide_lo, n * 8));
    t.per_unit = static_cast<const double*>(upload(t.per_unit, n * 8));
    t.log2_decay = static_cast<const double*>(upload(t.log2_decay, pairs * 8));
  }
}

void DeviceTables::release() noexcept {
  for (void* p : memory_) cudaFree(p);
  memory_.clear();
}

DeviceTables::~DeviceTables() {
  release();
}

}  // namespace posenc::v0::cuda
