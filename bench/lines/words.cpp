// SPDX-License-Identifier: Apache-2.0
// The fast attention engine in bfloat16 by products of pairs, forward and backward, beside these products at the rate of the machine plus its exponentials
// at that of a bare loop.
#include <memory>
#include <stdexcept>

#include "exponentials.h"
#include "line.h"
#include "multiply_words.h"
#include "narrow_call.h"
#if defined(POSENC_BENCH_KERNELS)
#include "kernels/attention/fast_word_slopes.h"
#endif

namespace posenc::bench {
namespace {

#if defined(POSENC_BENCH_KERNELS)
struct WordAttend {
  WordAttend(const FastShape& s, bool by_tiles)
      : call(s, DType::bf16),
        kernels(detail::usable_words(active_isa(), by_tiles)),
        multiply(by_tiles ? multiply_words_by_tiles() : multiply_words_by_vectors()) {
    if (kernels == nullptr || multiply == nullptr)
      throw std::invalid_argument(by_tiles ? "n/a: this machine has no AMX"
                                           : "n/a: this machine has no AVX512_BF16");
  }
  void run() {
    detail::replace_word_kernels(kernels);
    call.run();
    detail::replace_word_kernels(nullptr);
  }
  double error() {
    detail::replace_word_kernels(kernels);
    const double worst = call.error();
    detail::replace_word_kernels(nullptr);
    return worst;
  }
  NarrowAttend call;
  const detail::WordKernels* kernels;
  double (*multiply)(std::size_t);
};
#endif

Line word_line(const FastShape& s, bool by_tiles, double goal) {
  Line l;
  l.name = s.name();
  l.name.replace(l.name.find("f32"), 3, by_tiles ? "bf16/tiles" : "bf16/vectors");
  const bool forward = s.gradient == Gradient::none;
  const double products = (forward ? 2 : 5) * s.pairs() * static_cast<double>(s.dim);
  l.flops = 2 * products;
  l.bytes = 4.0 * 2 * static_cast<double>(s.batch * s.tokens * s.heads * s.dim);
  l.limit_name = by_tiles ? "amx_bf16+exp2" : "dp_bf16+exp2";
  l.goal = goal;
  l.prepare = [=]() -> Prepared {
#if defined(POSENC_BENCH_KERNELS)
    const auto call = std::make_shared<WordAttend>(s, by_tiles);
    Prepared r;
    r.max_error = forward ? call->error() : call->call.backward_error();
    r.bound = forward ? call->call.bound() : NarrowAttend::kBackwardBound;
    r.run = [=] { forward ? call->run() : call->call.backward(); };
    r.limit = [=] {
      volatile double sink = call->multiply(static_cast<std::size_t>(products));
      (void)sink;
      exponentials(s.pairs());
    };
    return r;
#else
    throw std::invalid_argument("n/a: a shared library shows no kernels");
#endif
  };
  return l;
}

}  // namespace

std::vector<Line> word_lines() {
  std::vector<Line> all;
  for (const By by : {By::plain, By::alibi, By::t5})
    for (const bool causal : {false, true}) {
      all.push_back(word_line({4096, 8, 64, causal, by}, false, 1.15));
      // 36 ms on a core of Sapphire Rapids, where the limit is about 13 ms.
      all.push_back(word_line({4096, 8, 64, causal, by}, true, 2.7));
    }
  for (const bool causal : {false, true})
    all.push_back(word_line({4096, 8, 64, causal, By::plain, Gradient::inputs}, false, 1.2));
  all.push_back(word_line({4096, 8, 64, false, By::t5, Gradient::table}, false, 1.25));
  return all;
}

}  // namespace posenc::bench
