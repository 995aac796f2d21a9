// SPDX-License-Identifier: Apache-2.0
// The fast attention engine on one thread, forward and backward, beside its multiply-adds at the rate of the machine plus its exponentials
// at that of a bare loop.
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <utility>

#include "limits.h"
#include "line.h"
#include "posenc/attention/attend.h"
#include "posenc/positions/sequence.h"
#if defined(POSENC_BENCH_KERNELS)
#include "kernels/attention/fast_strips.h"
#endif

namespace posenc::bench {
namespace {

// The last three read rows of a table: of 129 clipped distances by the query and for the values (Shaw), of all distances
// (Transformer-XL), of 512 buckets by the query and by the key (DeBERTa).
enum class By : std::uint8_t {
  plain,
  alibi,
  t5,
  tupe,
  capped,
  fire,
  cope,
  stick_breaking,
  shaw,
  transformer_xl,
  deberta
};
constexpr const char* kBy[] = {"plain",  "alibi",          "t5",     "tupe",
                               "capped", "fire",           "cope",   "stick_breaking",
                               "shaw",   "transformer_xl", "deberta"};

// What is computed: the output; gradients of q, k and v; those of the term's table too.
enum class Gradient : std::uint8_t { none, inputs, table };
constexpr const char* kGradient[] = {"", "backward/", "backward/table/"};

struct FastShape {
  Index tokens, heads, dim;
  bool causal;
  By by;
  Gradient gradient = Gradient::none;
  double pairs() const {
    const auto n = static_cast<double>(tokens);
    return static_cast<double>(heads) * (causal ? n * (n + 1) / 2 : n * n);
  }
  // Products beside those of q, k and v, forward.
  double more_products() const {
    const auto n = static_cast<double>(tokens * heads);
    return by == By::shaw                               ? 2 * n * 129
           : by == By::transformer_xl || by == By::tupe ? pairs()
           : by == By::deberta                          ? 2 * n * 512
           : by == By::cope                             ? n * 64
                                                        : 0;
  }
};

struct FastAttend {
  explicit FastAttend(const FastShape& s) : shape(s), at(arange(0, s.tokens)) {
    const Index n = s.tokens * s.heads * s.dim;
    for (std::size_t array = 0; array < 3; ++array)
      for (Index i = 0; i < n; ++i)
        x[array].push_back(static_cast<float>(
            std::sin(static_cast<double>(i) * static_cast<double>(array + 2) * 0.37)));
    out.assign(static_cast<std::size_t>(n), 0.0f);
    args.q = view(x[0]), args.k = view(x[1]), args.v = view(x[2]);
    args.scale = 1 / std::sqrt(static_cast<double>(s.dim));
    args.query_positions = args.key_positions = at;
    args.mask.causal = s.causal;
    add_terms();
    const auto rows = static_cast<std::size_t>(s.tokens * s.heads);
    sums.assign(s.gradient == Gradient::none ? 0 : rows, 0.0);
    for (std::vector<float>& g : gradients)
      g.assign(s.gradient == Gradient::none ? 0 : out.size(), 0.0f);
  }
  FastAttend(const FastAttend&) = delete;
  ConstHeads view(const std::vector<float>& v) const {
    return heads(v.data(), shape.tokens, shape.heads, shape.dim);
  }
  void add_terms() {
    const Index last = shape.tokens - 1;
    if (shape.by == By::tupe) add_vectors();
    const auto slope = [&](Index h) {
      return -std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(shape.heads));
    };
    if (shape.by == By::capped) args.softcap = 50;  // Gemma 2's
    if (shape.by == By::fire) add_curve();
    if (shape.by == By::stick_breaking) {
      args.normalisation = Normalisation::stick_breaking;
      ProductTerm t;  // so low that something is left after all keys
      t.lines[0] = line(1, [](Index) { return 0; });
      t.table = table(1, 1, [](Index) { return -8.0; });
      terms.emplace_back(t);
    }
    if (shape.by == By::cope) {
      GatesTerm t;
      t.table = table(64, shape.dim, wave), t.query = t.key = kContent;
      t.gate_scale = t.scale = *args.scale;
      terms.emplace_back(t);
    }
    if (shape.by == By::alibi)
      terms.emplace_back(LinearTerm{.table = table(1, 2, [&](Index n) { return slope(n / 2); })});
    if (shape.by == By::t5) add_product(line(128, [](Index d) { return (d + 128) / 9; }), 32, 1);
    if (shape.by == By::shaw) {
      const IndexLine clipped = line(64, [](Index d) { return d + 64; });
      add_product(clipped, 129, shape.dim).query = kContent;
      ValueRowsTerm values;
      values.lines[0] = clipped, values.table = table(129, shape.dim, wave);
      terms.emplace_back(values);
    }
    if (shape.by == By::transformer_xl) {
      const IndexLine each = line(last, [&](Index d) { return d + last; });
      add_product(each, 2 * last + 1, shape.dim).query = kContent;
      add_product(each, 2 * last + 1, 1);
      ProductTerm keys;
      keys.query.given = heads(table(1, shape.dim, wave), HeadsLayout::bhtd);
      keys.key = kContent, keys.scale = *args.scale;
      terms.emplace_back(keys);
    }
    if (shape.by == By::deberta) {
      const IndexLine buckets = line(511, log_bucket);
      add_product(buckets, 512, shape.dim).query = kContent;
      add_product(buckets, 512, shape.dim).key = kContent;
    }
    args.terms = terms;
  }
  // FIRE's 32 units, with knots all over the row.
  void add_curve() {
    const auto some = [&](Index count, const auto& number) {
      numbers.emplace_back();
      for (Index n = 0; n < count; ++n) numbers.back().push_back(number(n));
      return std::as_const(numbers.back()).data();
    };
    DistanceMlpTerm t;
    t.table = tensor(some(2, [](Index n) { return n == 0 ? 0.1 : 512.0; }), {1, 1, 1, 2});
    t.mlp.in = tensor(some(32, wave), {32, 1, 1});
    t.mlp.in_bias =
        tensor(some(32, [](Index n) { return -wave(n) * static_cast<double>(n + 1) / 33; }), {32});
    t.mlp.out = tensor(some(shape.heads * 32, wave), {shape.heads, 32, 1});
    t.mlp.out_bias = tensor(some(shape.heads, wave), {shape.heads});
    terms.emplace_back(t);
  }
  // Vectors of positions, of the query times those of the key.
  void add_vectors() {
    numbers.emplace_back();
    for (Index n = 0; n < shape.tokens * shape.heads * shape.dim; ++n)
      numbers.back().push_back(std::cos(0.71 * static_cast<double>(n)));
    ProductTerm t;
    t.scale = *args.scale;
    t.query.given = t.key.given =
        heads(std::as_const(numbers.back()).data(), shape.tokens, shape.heads, shape.dim);
    terms.emplace_back(t);
  }
  // DeBERTa-v3's: distances up to 128, then logarithms up to 512.
  static Index log_bucket(Index d) {
    const auto far = static_cast<double>(std::abs(d));
    const double y =
        far <= 128 ? far : std::ceil(std::log(far / 128) / std::log(511.0 / 128) * 127) + 128;
    return std::min<Index>(511, 256 + static_cast<Index>(d < 0 ? -y : y));
  }
  static double wave(Index n) { return 0.5 * std::cos(static_cast<double>(n)); }
  template <class F>
  ConstTensorView table(Index rows, Index channels, const F& number) {
    numbers.emplace_back();
    for (Index n = 0; n < shape.heads * rows * channels; ++n) numbers.back().push_back(number(n));
    return tensor(std::as_const(numbers.back()).data(), {1, shape.heads, rows, channels});
  }
  template <class F>
  IndexLine line(Index reach, const F& row) {
    lines.emplace_back();
    for (Index d = -reach; d <= reach; ++d)
      lines.back().push_back(static_cast<std::int32_t>(row(d)));
    return {lines.back().data(), 2 * reach + 1, -reach};
  }
  ProductTerm& add_product(const IndexLine& by, Index rows, Index channels) {
    ProductTerm t;
    t.lines[0] = by, t.table = table(rows, channels, wave);
    if (channels > 1) t.scale = *args.scale;
    return std::get<ProductTerm>(terms.emplace_back(t));
  }
  AttentionResult result() {
    AttentionResult r{heads(out.data(), shape.tokens, shape.heads, shape.dim), {}};
    if (!sums.empty()) r.log_sum_exp = tensor(sums.data(), {1, shape.heads, shape.tokens});
    return r;
  }
  void forward() { attend(args, result(), inline_executor()); }
  // The output is its own gradient.
  void backward() {
    const auto to = [&](std::size_t n) {
      return heads(gradients[n].data(), shape.tokens, shape.heads, shape.dim);
    };
    AttentionGradients g;
    g.q = to(0), g.k = to(1), g.v = to(2);
    std::vector<TermGradient> of_terms;
    for (std::size_t n = 0; shape.gradient == Gradient::table && n < terms.size(); ++n)
      of_terms.push_back(term_gradient(n));
    g.terms = of_terms;
    attend_backward(args, result(), {view(out), {}}, g, inline_executor());
  }
  TermGradient term_gradient(std::size_t n) {
    const TermArrays of = term_arrays(terms[n]);
    TermGradient to;
    d_numbers.resize(7 * terms.size());
    const auto vectors = [&](const ConstHeads& from, std::vector<double>& memory) {
      if (from.data == nullptr) return Heads{};
      memory.resize(static_cast<std::size_t>(from.tokens * from.heads * from.dim));
      return heads(memory.data(), from.tokens, from.heads, from.dim);
    };
    to.query = vectors(of.query.given, d_numbers[7 * n]);
    to.key = vectors(of.key.given, d_numbers[7 * n + 1]);
    if (of.table.empty()) return to;
    const auto dense = [&](const ConstTensorView& from, std::vector<double>& memory) {
      if (from.empty()) return TensorView{};
      memory.resize(static_cast<std::size_t>(from.count()));
      return tensor(memory.data(), DType::f64,
                    std::span(from.shape).first(static_cast<std::size_t>(from.rank)));
    };
    to.table = dense(of.table, d_numbers[7 * n + 2]);
    if (const auto* curve = std::get_if<DistanceMlpTerm>(&terms[n]))
      to.mlp = {dense(curve->mlp.in, d_numbers[7 * n + 3]),
                dense(curve->mlp.in_bias, d_numbers[7 * n + 4]),
                dense(curve->mlp.out, d_numbers[7 * n + 5]),
                dense(curve->mlp.out_bias, d_numbers[7 * n + 6])};
    return to;
  }
  void run() { shape.gradient == Gradient::none ? forward() : backward(); }

  // The terms of a call of one query.
  std::vector<Term> terms_of_query(Index i) const {
    std::vector<Term> of(terms.begin(), terms.end());
    for (Term& t : of)
      if (auto* product = std::get_if<ProductTerm>(&t))
        if (ConstHeads& given = product->query.given; given.tokens > 1) {
          given.data = static_cast<const double*>(given.data) + i * given.token_stride;
          given.tokens = 1;
        }
    return of;
  }
  // Gradients of a few rows of q by the exact engine.
  double backward_error() {
    double worst = 0;
    std::vector<Term> one;
    for (std::vector<float>& g : gradients) std::fill(g.begin(), g.end(), 0.0f);
    backward();
    AttentionArgs few = args;
    for (const Index i : {Index{0}, shape.tokens / 3, shape.tokens - 1}) {
      const Index at_row = i * shape.heads * shape.dim;
      few.q = heads(x[0].data() + at_row, 1, shape.heads, shape.dim);
      const OwnedPositions here = arange(i, 1);
      few.query_positions = here, few.mask.query_offset = i, few.exact = true;
      few.terms = one = terms_of_query(i);
      std::vector<float> want(static_cast<std::size_t>(shape.heads * shape.dim));
      AttentionGradients g;
      g.q = heads(want.data(), 1, shape.heads, shape.dim);
      const ConstHeads row = heads(std::as_const(out).data() + at_row, 1, shape.heads, shape.dim);
      attend_backward(few, {row, {}}, {row, {}}, g, inline_executor());
      for (std::size_t c = 0; c < want.size(); ++c)
        worst = std::max(
            worst,
            std::abs(static_cast<double>(want[c]) -
                     static_cast<double>(gradients[0][static_cast<std::size_t>(at_row) + c])));
    }
    return worst;
  }

  // A few rows by the definition, in double.
  double error() {
    AttentionArgs few = args;
    std::vector<Term> one;
    std::vector<float> want(static_cast<std::size_t>(shape.heads * shape.dim));
    double worst = 0;
    for (const Index i : {Index{0}, Index{1}, shape.tokens / 3, shape.tokens - 1}) {
      few.q = heads(x[0].data() + i * shape.heads * shape.dim, 1, shape.heads, shape.dim);
      const OwnedPositions here = arange(i, 1);
      few.query_positions = here, few.mask.query_offset = i, few.exact = true;
      few.terms = one = terms_of_query(i);
      attend(few, {heads(want.data(), 1, shape.heads, shape.dim), {}}, inline_executor());
      for (std::size_t c = 0; c < want.size(); ++c)
        worst = std::max(
            worst,
            std::abs(static_cast<double>(want[c]) -
                     static_cast<double>(out[static_cast<std::size_t>(i) * want.size() + c])));
    }
    return worst;
  }

  FastShape shape;
  std::vector<float> x[3], out, gradients[3];
  std::vector<double> sums;
  std::vector<std::vector<double>> d_numbers;
  std::deque<std::vector<double>> numbers;
  std::deque<std::vector<std::int32_t>> lines;
  OwnedPositions at;
  std::vector<Term> terms;
  AttentionArgs args;
};

// A shared library does not show the loop: then the limit is without it.
#if defined(POSENC_BENCH_KERNELS)
constexpr const char* kLimit = "fma_f32+exp2";
void exponentials(double count) {
  float x[1024];
  for (double done = 0; done < count; done += 1024) {
    std::fill(std::begin(x), std::end(x), -1.25f);
    detail::fast_kernels(active_isa()).exponentials(x, 1024);
    volatile float sink = x[17];
    (void)sink;
  }
}
#else
constexpr const char* kLimit = "fma_f32";
void exponentials(double) {}
#endif

Line fast_line(const FastShape& s, double goal) {
  Line l;
  l.name = std::string("attend/f32/") + kGradient[static_cast<std::size_t>(s.gradient)] +
           kBy[static_cast<std::size_t>(s.by)] + (s.causal ? "/causal/" : "/full/") +
           std::to_string(s.tokens) + 'x' + std::to_string(s.heads) + 'x' + std::to_string(s.dim);
  const double products = (s.gradient == Gradient::none ? 2 * s.pairs() + s.more_products()
                                                        : 5 * s.pairs() + 3 * s.more_products()) *
                          static_cast<double>(s.dim);
  l.flops = 2 * products;
  l.bytes = 4.0 * 4 * static_cast<double>(s.tokens * s.heads * s.dim);
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
  return all;
}

}  // namespace posenc::bench
