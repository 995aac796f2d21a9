// SPDX-License-Identifier: Apache-2.0
// Calls of the fast attention engine that lines measure: schemes, forward or backward, checked against the exact engine.
#pragma once
#include <algorithm>
#include <cmath>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "fast_shape.h"
#include "posenc/attention/attend.h"
#include "posenc/positions/grid.h"
#include "posenc/positions/sequence.h"

namespace posenc::bench {

struct FastAttend {
  explicit FastAttend(const FastShape& s)
      : shape(s), at(places(s, 0)), query_at(places(s, s.behind > 0 ? s.tokens + s.behind : 0)) {
    const Index n = s.batch * s.tokens * s.heads * s.dim;
    for (std::size_t array = 0; array < 3; ++array)
      for (Index i = 0; i < n; ++i)
        x[array].push_back(static_cast<float>(
            std::sin(static_cast<double>(i) * static_cast<double>(array + 2) * 0.37)));
    out.assign(static_cast<std::size_t>(n), 0.0f);
    args.q = view(x[0]), args.k = view(x[1]), args.v = view(x[2]);
    args.scale = 1 / std::sqrt(static_cast<double>(s.dim));
    args.query_positions = query_at, args.key_positions = at;
    args.mask.causal = s.causal;
    add_terms();
    const auto rows = static_cast<std::size_t>(s.batch * s.tokens * s.heads);
    sums.assign(s.gradient == Gradient::none ? 0 : rows, 0.0);
    for (std::vector<float>& g : gradients)
      g.assign(s.gradient == Gradient::none ? 0 : out.size(), 0.0f);
  }
  FastAttend(const FastAttend&) = delete;
  // Tokens in their order, or rows and columns of a square picture, or their order and coordinates from 0 to 1000 on a page.
  static OwnedPositions places(const FastShape& s, Index first) {
    if (s.by == By::layoutlm) {
      OwnedPositions x = arange(0, s.tokens), y = x;
      for (Index& at : std::get<0>(x.value)) at = at * 397 % 1001;
      for (Index& at : std::get<0>(y.value)) at = at * at * 31 % 1001;
      const OwnedPositions axes[] = {arange(0, s.tokens), x, y};
      return stacked(axes);
    }
    return s.by == By::sam || s.by == By::swin ? grid({s.side(), s.side()})
                                               : arange(first, s.tokens);
  }
  ConstHeads view(const std::vector<float>& v) const {
    return heads(tensor(static_cast<const void*>(v.data()), DType::f32, shape_of()),
                 HeadsLayout::bthd);
  }
  Heads view(std::vector<float>& v) const {
    return heads(tensor(static_cast<void*>(v.data()), DType::f32, shape_of()), HeadsLayout::bthd);
  }
  std::vector<Index> shape_of() const {
    return {shape.batch, shape.tokens, shape.heads, shape.dim};
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
    if (shape.by == By::kerple) {
      const IndexLine each = line(last + shape.behind + shape.tokens,
                                  [&](Index d) { return d + last + shape.behind + shape.tokens; });
      add_product(each, 0, 1).table = table(each.count, 1, [&](Index n) {
        return -std::log1p(2 * std::fabs(static_cast<double>(n % each.count + each.lo)));
      });
    }
    add_segments();
    add_places();
    if (shape.by == By::decay) add_decay();
    if (shape.by == By::forgetting) add_gates();
    if (shape.by == By::alibi)
      terms.emplace_back(LinearTerm{.table = table(1, 2, [&](Index n) { return slope(n / 2); })});
    if (shape.by == By::t5 || shape.by == By::t5_segments)
      add_product(line(128, [](Index d) { return (d + 128) / 9; }), 32, 1);
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
  // A number for each pair of four classes.
  void add_segments() {
    const bool mixed = shape.by == By::mixed_segments;
    if (shape.by == By::class_token) return add_class_token();
    if (!mixed && shape.by != By::segments && shape.by != By::t5_segments) return;
    lines.emplace_back();
    for (Index token = 0; token < shape.tokens; ++token)
      classes.push_back(mixed ? token * token % 7 % 4 : token * 4 / shape.tokens);
    for (std::int32_t n = 0; n < 16; ++n) lines.back().push_back(n);
    const ConstTensorView of = tensor(std::as_const(classes).data(), {1, shape.tokens});
    add_product({}, 16, 1).pair = {lines.back().data(), 4, 4, of, of};
  }
  // TUPE's: the first token has numbers of its own, and no distances.
  void add_class_token() {
    classes.assign(static_cast<std::size_t>(shape.tokens), 0), classes[0] = 1;
    const ConstTensorView of = tensor(std::as_const(classes).data(), {1, shape.tokens});
    const auto rows = [&](std::vector<std::int32_t> of_classes) {
      return lines.emplace_back(std::move(of_classes)).data();
    };
    add_product(line(128, [](Index d) { return (d + 128) / 9; }), 32, 1).pair = {
        rows({0, -1, -1, -1}), 2, 2, of, of};
    add_product({}, 2, 1).pair = {rows({-1, 1, 0, 0}), 2, 2, of, of};
  }
  void add_places() {
    if (shape.by == By::sam) add_picture();
    if (shape.by == By::swin) add_offsets();
    if (shape.by == By::layoutlm) add_page();
  }
  // SAM's: the query times a row of a table for the rows of the picture, and of one for its columns.
  void add_picture() {
    const Index side = shape.side();
    for (const std::int32_t axis : {0, 1}) {
      ProductTerm& t = add_product(line(side - 1, [&](Index d) { return d + side - 1; }),
                                   2 * side - 1, shape.dim);
      t.lines[0].axis = axis, t.query = kContent;
    }
  }
  // LayoutLM's: buckets of the order and of both coordinates.
  void add_page() {
    for (const std::int32_t axis : {0, 1, 2})
      add_product(line(axis == 0 ? 127 : 255, log_bucket), 512, 1).lines[0].axis = axis;
  }
  // Swin's: a number for each offset of rows and columns.
  void add_offsets() {
    const Index side = shape.side();
    const Index offsets = 2 * side - 1;
    ProductTerm& t = add_product(line(side - 1, [&](Index d) { return (d + side - 1) * offsets; }),
                                 offsets * offsets, 1);
    t.lines[1] = line(side - 1, [&](Index d) { return d + side - 1; });
    t.lines[1].axis = 1;
  }
  // Forgetting gates: sums of what each token keeps.
  void add_decay() {
    numbers.emplace_back();
    for (Index n = 0; n < shape.batch * shape.tokens * shape.heads; ++n)
      numbers.back().push_back(-0.01 * static_cast<double>(n / shape.heads % shape.tokens));
    DecayTerm t;
    t.query.given = t.key.given = heads(
        tensor(std::as_const(numbers.back()).data(), {shape.batch, shape.tokens, shape.heads, 1}),
        HeadsLayout::bthd);
    terms.emplace_back(t);
  }
  void add_gates() {
    GatesTerm t;
    t.query = t.key = kContent, t.gate = Gate::log_sigmoid, t.gate_scale = *args.scale;
    t.scale = 0.05;
    terms.emplace_back(t);
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
    AttentionResult r{view(out), {}};
    if (!sums.empty())
      r.log_sum_exp = tensor(sums.data(), {shape.batch, shape.heads, shape.tokens});
    return r;
  }
  void forward(const Executor& e = inline_executor()) { attend(args, result(), e); }
  // The output is its own gradient.
  void backward(const Executor& e = inline_executor()) {
    AttentionGradients g;
    g.q = view(gradients[0]), g.k = view(gradients[1]), g.v = view(gradients[2]);
    std::vector<TermGradient> of_terms;
    for (std::size_t n = 0; shape.gradient == Gradient::table && n < terms.size(); ++n)
      of_terms.push_back(term_gradient(n));
    g.terms = of_terms;
    attend_backward(args, result(), {view(std::as_const(out)), {}}, g, e);
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
  void run(const Executor& e = inline_executor()) {
    shape.gradient == Gradient::none ? forward(e) : backward(e);
  }

  // Query i of the first entry of the batch, by the exact engine.
  Positions only(AttentionArgs& few, Index i) const {
    const auto one = [&](const std::vector<float>& of, Index tokens, Index first) {
      return heads(of.data() + first * shape.heads * shape.dim, tokens, shape.heads, shape.dim);
    };
    few.q = one(x[0], 1, i), few.k = one(x[1], shape.tokens, 0), few.v = one(x[2], shape.tokens, 0);
    few.mask.query_offset = i, few.exact = true;
    Positions here = query_at;
    here.data = static_cast<const std::int64_t*>(here.data) + i * here.token_stride;
    here.count = 1;
    return here;
  }
  // The terms of a call of one query.
  std::vector<Term> terms_of_query(Index i) const {
    std::vector<Term> of(terms.begin(), terms.end());
    for (Term& t : of) {
      if (PickedRows* picked = picked_rows(t); picked != nullptr && picked->pair.row != nullptr)
        picked->pair.query_class = tensor(classes.data() + i, {1, 1});
      auto* product = std::get_if<ProductTerm>(&t);
      auto* decay = std::get_if<DecayTerm>(&t);
      if (product == nullptr && decay == nullptr) continue;
      if (ConstHeads& given = (product != nullptr ? product->query : decay->query).given;
          given.tokens > 1) {
        given.data = static_cast<const double*>(given.data) + i * given.token_stride;
        given.tokens = 1;
      }
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
      const Positions here = only(few, i);
      few.query_positions = here;
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
      const Positions here = only(few, i);
      few.query_positions = here;
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
  std::vector<std::int64_t> classes;
  OwnedPositions at, query_at;
  std::vector<Term> terms;
  AttentionArgs args;
};

}  // namespace posenc::bench
