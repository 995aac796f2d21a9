// SPDX-License-Identifier: Apache-2.0
// Gradients of vectors that come with a term whose rows of a table they are multiplied with (WavLM, ProphetNet), of the
// fast engine beside the plain reference in double.
#include <gtest/gtest.h>

#include "attention/rows_call.h"
#include "posenc/core/isa.h"

namespace posenc {
namespace {

// Vectors of three channels, in as many batch entries, tokens and heads.
struct GivenVectorsCall : RowsCall {
  GivenVectorsCall(Rows kind, bool of_keys, Index batch, bool one_token, Index groups,
                   Index queries = 50, Index keys = 220)
      : RowsCall(2, queries, keys, 4, 8, 9) {
    const Index tokens = one_token ? 1 : of_keys ? keys : queries;
    vectors = random.normals(static_cast<std::size_t>(batch * tokens * groups * 3));
    ProductTerm t = rows(kind, of_keys, 1, 2);
    t.query = t.key = {};
    (of_keys ? t.key : t.query).given =
        heads(tensor(std::as_const(vectors).data(), {batch, tokens, groups, 3}), HeadsLayout::bthd);
    t.table = table(1, 2, t.table.shape[2], 3);
    add(t);
  }
  std::vector<double> vectors;
};

TEST(FastGivenVectors, GradientsAreThoseOfTheReference) {
  int n = 0;
  for (const Isa isa : supported_isas()) {
    force_isa(isa);
    for (const Rows kind : {Rows::clipped, Rows::buckets, Rows::each})
      for (const bool of_keys : {false, true})
        for (const bool one : {false, true}) {
          if (++n > 12 && n % 3 != 0) continue;
          // Entries that one piece of work owns, and those that several share.
          const Index groups = n % 4 == 0 ? 1 : n % 4 == 1 ? 2 : 4;
          GivenVectorsCall call(kind, of_keys, n % 5 < 2 ? 1 : 2, one, groups, 9);
          if (n % 7 < 2) call.share_keys();
          call.args.mask.causal = n % 2 == 0;
          EXPECT_EQ(call.wrong_backward(), "")
              << isa_name(isa) << static_cast<int>(kind) << of_keys << one << n;
        }
  }
  reset_isa();
}

// Beside a table that is multiplied with q and k themselves, with factors of queries.
TEST(FastGivenVectors, BesideRowsOfContent) {
  for (const bool of_keys : {false, true}) {
    GivenVectorsCall call(Rows::buckets, of_keys, 2, false, 4);
    call.add(call.rows(Rows::clipped, of_keys, 1, 4));
    const std::vector<double> factor = call.random.normals(100);
    call.args.query_factor = tensor(factor.data(), {2, 50});
    EXPECT_EQ(call.wrong_backward(), "");
  }
}

// Of keys that no query sees they may hold anything; one number of the others leaves all to the exact engine.
TEST(FastGivenVectors, NumbersThatAreNotFinite) {
  GivenVectorsCall call(Rows::buckets, true, 2, false, 4);
  std::vector<std::uint8_t> visible(440, 1);
  for (std::size_t j = 20; j < 50; ++j) visible[j] = visible[220 + j] = 0;
  call.args.mask.key_visible = tensor(std::as_const(visible).data(), {2, 220});
  const CallResult clean = gradients_of_fast(call.args);
  for (std::size_t n = 20 * 12; n < 50 * 12; ++n) call.vectors[n] = std::nan("");
  const CallResult got = gradients_of_fast(call.args);
  for (std::size_t n = 0; n < got.gradients.size(); ++n)
    EXPECT_EQ(got.gradients[n], clean.gradients[n]) << got.names[n];
  // It hides its pairs, so that all other numbers are those that float holds.
  for (double& x : call.tables.back()) x = std::fabs(x);
  call.vectors[60 * 12 + 6] = -1e30;
  AttentionArgs exact = call.args;
  exact.exact = true;
  EXPECT_EQ(gradients_of_fast(call.args).gradients, gradients_of_fast(exact).gradients);
}

TEST(FastGivenVectors, AnyNumberOfThreadsGivesTheSameBits) {
  for (const bool of_keys : {false, true})
    for (const Index groups : {1, 4})
      expect_same_gradient_bits(
          GivenVectorsCall(Rows::each, of_keys, 2, groups == 1, groups, 200, 300).args);
}

}  // namespace
}  // namespace posenc
