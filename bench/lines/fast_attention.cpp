// SPDX-License-Identifier: Apache-2.0
// The fast attention engine on one thread, forward and backward, beside its multiply-adds at the rate of the machine plus its exponentials
// at that of a bare loop.
#include <memory>

#include "exponentials.h"
#include "fast_call.h"
#include "limits.h"
#include "line.h"

namespace posenc::bench {
namespace {

#if defined(POSENC_BENCH_KERNELS)
constexpr const char* kLimit = "fma_f32+exp2";
#else
constexpr const char* kLimit = "fma_f32";
#endif

Line fast_line(const FastShape& s, double goal) {
  Line l;
  l.name = s.name();
  const double products = (s.gradient == Gradient::none ? 2 * s.pairs() + s.more_products()
                                                        : 5 * s.pairs() + 3 * s.more_products()) *
                          static_cast<double>(s.dim);
  l.flops = 2 * products;
  l.bytes = 4.0 * 4 * static_cast<double>(s.batch * s.tokens * s.heads * s.dim);
  l.limit_name = kLimit;
  l.goal = goal;
  l.prepare = [=] {
    const auto call = std::make_shared<FastAttend>(s);
    call->forward();
    Prepared r;
    r.max_error = s.gradient == Gradient::none ? call->error() : call->backward_error();
    r.bound = 5e-6;
    r.run = [call] { call->run(); };
    const auto best = std::make_shared<MultiplyAdds>(multiply_adds_in_use());
    r.limit = [=] {
      volatile double sink = best->f32(static_cast<std::size_t>(products), 1);
      (void)sink;
      exponentials(s.pairs());
    };
    return r;
  };
  return l;
}

}  // namespace

std::vector<Line> fast_attention_lines() {
  std::vector<Line> all;
  for (const By by : {By::plain, By::alibi, By::t5})
    for (const bool causal : {false, true})
      all.push_back(fast_line({4096, 8, 64, causal, by}, causal ? 1.18 : 1.15));
  all.push_back(fast_line({4096, 8, 64, false, By::shaw}, 1.22));
  all.push_back(fast_line({4096, 8, 64, false, By::transformer_xl}, 1.22));
  all.push_back(fast_line({4096, 8, 64, false, By::deberta}, 1.3));
  for (const bool causal : {false, true})
    all.push_back(fast_line({2048, 8, 128, causal, By::plain}, causal ? 1.18 : 1.15));
  for (const bool causal : {false, true})
    all.push_back(fast_line({4096, 8, 64, causal, By::tupe}, 1.2));
  all.push_back(fast_line({4096, 8, 64, true, By::capped}, 1.36));
  all.push_back(fast_line({4096, 8, 64, true, By::fire}, 1.36));
  all.push_back(fast_line({4096, 8, 64, true, By::cope}, 1.3));
  all.push_back(fast_line({4096, 8, 64, true, By::stick_breaking}, 2));
  for (const Index tokens : {64, 128, 512})
    for (const bool causal : {false, true})
      all.push_back(fast_line({tokens, 64, 64, causal, By::plain}, causal ? 1.85 : 1.3));
  all.push_back(fast_line({1000, 8, 80, false, By::plain}, 1.2));
  all.push_back(fast_line({1024, 8, 96, false, By::plain}, 1.2));
  for (const bool causal : {false, true})
    all.push_back(
        fast_line({4096, 8, 64, causal, By::plain, Gradient::inputs}, causal ? 1.32 : 1.25));
  all.push_back(fast_line({4096, 8, 64, false, By::t5, Gradient::inputs}, 1.29));
  all.push_back(fast_line({4096, 8, 64, false, By::t5, Gradient::table}, 1.29));
  all.push_back(fast_line({4096, 8, 64, false, By::tupe, Gradient::table}, 1.3));
  all.push_back(fast_line({4096, 8, 64, true, By::capped, Gradient::inputs}, 1.52));
  all.push_back(fast_line({4096, 8, 64, true, By::fire, Gradient::table}, 1.52));
  all.push_back(fast_line({4096, 8, 64, false, By::shaw, Gradient::table}, 1.35));
  all.push_back(fast_line({4096, 8, 64, true, By::cope, Gradient::table}, 1.65));
  all.push_back(fast_line({4096, 8, 64, false, By::transformer_xl, Gradient::table}, 1.35));
  all.push_back(fast_line({4096, 8, 64, false, By::deberta, Gradient::table}, 1.45));
  all.push_back(fast_line({512, 8, 64, false, By::plain, Gradient::inputs}, 1.35));
  // A step of training of a small model.
  for (const Gradient gradient : {Gradient::none, Gradient::inputs})
    all.push_back(fast_line({32, 8, 16, false, By::plain, gradient, 128}, 0));
  return all;
}

}  // namespace posenc::bench
