// SPDX-License-Identifier: Apache-2.0
// Gradients where many heads read the keys of one (multi-query attention): heads are divided among pieces of work, in
// equal parts or not, and every sum that the pieces share is right and has the same bits for any number of threads.
#include <gtest/gtest.h>

#include "attention/float_call.h"
#include "posenc/rotary/rope.h"

namespace posenc {
namespace {

struct SharedKeysCall : FloatCall {
  // `tables`: batch entries and heads of the tables.
  SharedKeysCall(Index b, Index queries, Index keys, Index h, Index g, Index table_heads)
      : FloatCall(b, queries, keys, h, g, 8, 5, 7) {
    test::Random r(9);
    const auto some = [&](Index count) {
      arrays.push_back(r.normals(static_cast<std::size_t>(count)));
      for (double& x : arrays.back()) x *= 0.3;
      return arrays.back().data();
    };
    for (std::int32_t delta = -300; delta <= 300; ++delta)
      rows.push_back(delta < -4 ? 0 : delta < 5 ? 1 : delta < 90 ? 2 : 3);
    const IndexLine line{rows.data(), 601, -300};
    const Index t = table_heads;
    LinearTerm linear{.table = tensor(some(2 * t), {1, t, 1, 2})};
    ProductTerm number, shaw, added;
    number.lines[0] = shaw.lines[0] = line;
    number.table = tensor(some(4 * t), {1, t, 4, 1});
    shaw.query = kContent, shaw.table = tensor(some(4 * t * D), {1, t, 4, D}), shaw.scale = 0.1;
    added.query.given = heads(tensor(some(Tq * t * 3), {1, Tq, t, 3}), HeadsLayout::bthd);
    added.key.given = heads(tensor(some(Tk * t * 3), {1, Tk, t, 3}), HeadsLayout::bthd);
    ValueRowsTerm values;
    values.lines[0] = line, values.table = tensor(some(4 * t * V), {1, t, 4, V});
    DecayTerm decay;
    decay.key.given = heads(tensor(some(Tk * t), {1, Tk, t, 1}), HeadsLayout::bthd);
    terms = {linear, number, shaw, added, values, decay};
    args.mask.causal = true;
  }
  void expect_right(std::size_t first, std::size_t count) {
    args.terms = std::span(terms).subspan(first, count);
    EXPECT_EQ(explain_plan(args).backward_engine, "fast");
    AttentionArgs exact = args;
    exact.exact = true;
    const CallResult one = gradients_of_fast(args, inline_executor());
    EXPECT_EQ(
        wrong_gradients(one, gradients_of_fast(exact), DType::f32, gradient_tolerance(DType::f32)),
        "")
        << first;
    EXPECT_EQ(gradients_of_fast(args).gradients, one.gradients) << first;
  }
  std::deque<std::vector<double>> arrays;
  std::vector<std::int32_t> rows;
  std::vector<Term> terms;
};

TEST(FastSharedKeys, PartsOfTheHeads) {
  for (const auto [h, g] : {std::array<Index, 2>{2, 1}, {5, 1}, {12, 1}, {6, 2}, {21, 3}})
    for (const Index table_heads : {Index{1}, g, h}) {
      SharedKeysCall call(1, 40, 50, h, g, table_heads);
      SCOPED_TRACE(std::to_string(h) + " heads of " + std::to_string(g) + ", tables of " +
                   std::to_string(table_heads));
      for (std::size_t n = 0; n < call.terms.size(); ++n) call.expect_right(n, 1);
      call.expect_right(0, 2);
    }
}

TEST(FastSharedKeys, BatchesSlicesBiasesAndStages) {
  const RotarySpec rope = resolve(Rope{.head_dim = 8, .pairing = Pairing::half_split});
  Stage rotate;
  rotate.kind = StageKind::rotate, rotate.rotary = &rope;
  const Stage stages[] = {rotate};
  for (const Index heads : {3, 4}) {
    SharedKeysCall call(2, 40, 50, heads, 1, 1), sliced(1, 20, 1300, heads, 1, 1);
    call.args.prepare = stages;
    call.expect_right(0, 2);
    call.args.prepare = {};
    test::Random r(3);
    const std::vector<double> bias = r.normals(static_cast<std::size_t>(2 * heads * 40 * 50));
    for (const Index of : {Index{1}, heads}) {
      call.args.mask.bias = tensor(bias.data(), {2, of, 40, 50});
      call.expect_right(0, 0);
    }
    call.args.mask.bias = tensor(bias.data(), {40, 50});
    call.expect_right(0, 0);
    sliced.expect_right(0, 2);
    sliced.expect_right(5, 1);
  }
}

}  // namespace
}  // namespace posenc
