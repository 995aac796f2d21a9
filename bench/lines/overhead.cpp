// SPDX-License-Identifier: Apache-2.0
// What a call of the public API costs beside the kernel that it ends in: one token, as a decoder
// calls once a layer. A few nanoseconds between two numbers of a few hundred: both are called in
// turns, and the difference is taken of what each needs undisturbed.
#include <algorithm>
#include <chrono>
#include <stdexcept>

#include "line.h"
#include "posenc/registry.h"
#include "posenc/rotary/plan.h"
#if POSENC_BENCH_KERNELS
#include "kernels/rotate.h"
#endif

namespace posenc::bench {
namespace {

#if POSENC_BENCH_KERNELS
using Clock = std::chrono::steady_clock;
constexpr int kCalls = 500;
constexpr double kAllowed = 10e-9;

template <class F>
double seconds_of(const F& f) {
  const Clock::time_point start = Clock::now();
  for (int i = 0; i < kCalls; ++i) f();
  return std::chrono::duration<double>(Clock::now() - start).count() / kCalls;
}

// The second percentile: a neighbour disturbs most samples, luck fewer.
double undisturbed(std::vector<double>& v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 50];
}

Measured overhead(double seconds) {
  const RotaryPlan plan(
      resolve(Rope{.head_dim = 128, .base = 500000, .pairing = Pairing::half_split}), DType::f32);
  std::vector<float> q(32 * 128, 1.0f), k(8 * 128, 1.0f);
  const Index position = 1000;
  const Positions at = positions(std::span<const Index>(&position, 1));
  const QK x{heads(q.data(), Index{1}, Index{32}, Index{128}),
             heads(k.data(), Index{1}, Index{8}, Index{128})};
  detail::RotateCall call;
  call.in = call.out = &x;
  call.blocks = plan.tables().data();
  call.block_count = 1;
  call.positions = &at;
  const detail::RotateKernels& kernels = detail::rotate_kernels(DType::f32, active_isa());
  std::vector<double> api, bare;
  for (const Clock::time_point start = Clock::now();
       std::chrono::duration<double>(Clock::now() - start).count() < seconds || api.size() < 50;) {
    api.push_back(seconds_of([&] { plan.apply(x, x, at); }));
    bare.push_back(seconds_of([&] { kernels.rotate(call, 0, 1); }));
  }
  Measured m;
  m.samples = static_cast<int>(api.size());
  m.seconds = undisturbed(api) - undisturbed(bare);
  m.limit_seconds = kAllowed;
  return m;
}
#else
Measured overhead(double) {
  throw std::invalid_argument("n/a: a shared library shows no kernels");
}
#endif

}  // namespace

std::vector<Line> overhead_lines() {
  return {self_timed("rotate/f32/half_split/1/call_beside_its_kernel", "10_ns", overhead)};
}

}  // namespace posenc::bench
