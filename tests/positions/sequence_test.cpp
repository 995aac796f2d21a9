// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/sequence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "posenc/core/error.h"
#include "posenc/positions.h"
#include "support/refusal.h"
#include "support/suite.h"

namespace posenc {
namespace {

using test::refusal;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Integers = std::vector<Index>;

Integers list(const OwnedPositions& p) {
  return std::get<Integers>(p.value);
}
std::vector<double> reals(const OwnedPositions& p) {
  return std::get<std::vector<double>>(p.value);
}
const support::Suite& absolute() {
  static const support::Suite suite("absolute");
  return suite;
}
ConstTensorView rows(const Integers& v, Index batch) {
  return tensor(v.data(), {batch, static_cast<Index>(v.size()) / batch});
}

TEST(Positions, FromMaskAsTransformers5And4) {
  const auto mask5 = absolute()("ids_hf_generation_mask", "attention_mask");
  const Integers m5 = mask5.integers();
  EXPECT_EQ(list(from_mask(rows(m5, 4), 0)),
            absolute()("ids_hf_generation_mask", "position_ids").integers());
  const auto mask4 = absolute()("ids_hf436_gpt2_generation", "attention_mask");
  const Integers m4 = mask4.integers();
  EXPECT_EQ(list(from_mask(rows(m4, 3), 1)),
            absolute()("ids_hf436_gpt2_generation", "position_ids").integers());
}

TEST(Positions, FromMaskGivesOptsRows) {
  const Integers mask = absolute()("ids_hf_opt_rows", "attention_mask").integers();
  const OwnedPositions all = from_mask(rows(mask, 4), 1, 2);
  EXPECT_EQ(list(all), absolute()("ids_hf_opt_rows", "rows").integers());
  const Index last_two[] = {3, 4};
  EXPECT_EQ(list(picked(all, last_two)), absolute()("ids_hf_opt_rows", "rows_past3").integers());
}

TEST(Positions, FromTokensAsFairseqAndRoberta) {
  const Integers ids = absolute()("ids_fairseq", "input_ids").integers();
  for (const Index pad : {0, 1, 5})
    EXPECT_EQ(list(from_tokens(rows(ids, 5), pad)),
              absolute()("ids_fairseq", "pad" + std::to_string(pad)).integers());
  const Integers roberta = absolute()("ids_hf_roberta", "input_ids").integers();
  const std::uint8_t bytes[] = {1, 9, 1};
  const Index three[] = {3};
  EXPECT_EQ(list(from_tokens(tensor(static_cast<const void*>(bytes), DType::u8, three), 1)),
            (Integers{1, 2, 1}));
  EXPECT_EQ(list(from_tokens(rows(roberta, 5), 1)),
            absolute()("ids_hf_roberta", "past0").integers());
  EXPECT_EQ(list(from_tokens(rows(roberta, 5), 1, 4)),
            absolute()("ids_hf_roberta", "past4").integers());
  const OwnedPositions row = arange(2, 5);
  const OwnedPositions two[] = {row, row};
  EXPECT_EQ(list(batched(two)), absolute()("ids_hf_roberta", "from_embeds").integers());
}

TEST(Positions, PackedAndBackAsTransformers) {
  const Integers cu = absolute()("ids_hf_packing", "cu_seqlens").integers();
  EXPECT_EQ(list(packed(cu)), absolute()("ids_hf_packing", "position_ids").integers());
  EXPECT_EQ(list(packed(cu, 2)), absolute()("ids_hf_packing", "position_ids_from2").integers());
  EXPECT_EQ(document_index(cu), absolute()("ids_hf_packing", "seq_idx").integers());
  const Integers ids = absolute()("ids_hf_packing_inverse", "position_ids").integers();
  const Integers documents = absolute()("ids_hf_packing_inverse", "documents").integers();
  for (std::size_t row = 0; row < 2; ++row) {
    const std::span<const Index> p(ids.data() + 10 * row, 10);
    EXPECT_EQ(document_index_of_positions(p),
              Integers(documents.begin() + static_cast<std::ptrdiff_t>(10 * row),
                       documents.begin() + static_cast<std::ptrdiff_t>(10 * row + 10)));
  }
  EXPECT_EQ(cu_seqlens_of_positions(std::span<const Index>(ids.data(), 10)),
            absolute()("ids_hf_packing_inverse", "cu_seqlens_row0").integers());
  const Integers from2 = absolute()("ids_hf_packing_inverse", "position_ids_from2").integers();
  EXPECT_EQ(cu_seqlens_of_positions(from2),
            absolute()("ids_hf_packing_inverse", "cu_seqlens_from2").integers());
}

TEST(Positions, ArangeGoesFarAndBackwards) {
  EXPECT_THAT(list(arange(5, 3)), ElementsAre(5, 6, 7));
  EXPECT_THAT(list(arange(0, 3, -2)), ElementsAre(0, -2, -4));
  EXPECT_THAT(list(arange(Index{1} << 37, 2)), ElementsAre(137438953472, 137438953473));
  EXPECT_THAT(list(arange(kUnbounded - 1, 2)), ElementsAre(kUnbounded - 1, kUnbounded));
  EXPECT_TRUE(list(arange(7, 0)).empty());
  EXPECT_THAT(refusal([] { arange(kUnbounded, 2); }), HasSubstr("[arange] positions must stay"));
  try {
    arange(0, Index{1} << 40);
    ADD_FAILURE() << "8 TiB were given";
  } catch (const OutOfMemory& e) {
    EXPECT_THAT(e.what(), HasSubstr("[arange] a list of 1099511627776 positions"));
  }
  EXPECT_THAT(refusal([] { arange(0, -1); }), HasSubstr("[arange] count"));
  EXPECT_THAT(refusal([] { arange(0, 3, kUnbounded); }), HasSubstr("[arange]"));
}

TEST(Positions, PaddingOnTheWrongSideIsRefused) {
  const Integers left{0, 0, 1, 1}, right{1, 1, 0, 0}, two{0, 2, 1, 1};
  EXPECT_THAT(list(left_padded(rows(left, 1), 1)), ElementsAre(1, 1, 0, 1));
  EXPECT_THAT(list(right_padded(rows(right, 1), 0)), ElementsAre(0, 1, 0, 0));
  EXPECT_THAT(refusal([&] { left_padded(rows(right, 1), 0); }), HasSubstr("[left_padded]"));
  EXPECT_THAT(refusal([&] { right_padded(rows(left, 1), 0); }), HasSubstr("[right_padded]"));
  EXPECT_EQ(refusal([&] { from_mask(rows(two, 1), 0); }),
            "[from_mask] mask must hold 0 and 1 only, got 2");
  const double wrong[] = {1, 1};
  EXPECT_THAT(refusal([&] { from_mask(tensor(wrong, {2}), 0); }), HasSubstr("dtype"));
  EXPECT_EQ(from_mask(tensor(left.data(), {2, 0}), 0).count(), 0);
}

TEST(Positions, StridedMasksAreRead) {
  const std::uint8_t bytes[] = {0, 9, 1, 9, 1, 9};
  const Index shape[] = {3}, stride[] = {2};
  ConstTensorView v = tensor(bytes, {6});
  v.shape[0] = shape[0];
  v.stride[0] = stride[0];
  EXPECT_THAT(list(from_mask(v, -1)), ElementsAre(-1, 0, 1));
}

TEST(Positions, DecodeGivesARowForEachLength) {
  const Index lengths[] = {7, 0, Index{1} << 31};
  const OwnedPositions p = decode_positions(lengths, 2);
  EXPECT_EQ(p.batch, 3);
  EXPECT_THAT(list(p), ElementsAre(7, 8, 0, 1, 2147483648, 2147483649));
  const Index bad[] = {-1};
  EXPECT_THAT(refusal([&] { decode_positions(bad); }), HasSubstr("[decode_positions] lengths"));
}

TEST(Positions, PackedRefusesWhatIsNoBoundaryList) {
  EXPECT_THAT(refusal([] { packed(Integers{}); }), HasSubstr("[packed] cu_seqlens"));
  EXPECT_THAT(refusal([] { packed(Integers{1, 2}); }), HasSubstr("start at 0"));
  EXPECT_THAT(refusal([] { packed(Integers{0, 3, 2}); }), HasSubstr("not decrease"));
  EXPECT_TRUE(list(packed(Integers{0})).empty());
}

TEST(Positions, PutTogether) {
  const OwnedPositions a = arange(0, 2), b = arange(10, 2);
  const OwnedPositions parts[] = {a, b};
  EXPECT_THAT(list(batched(parts)), ElementsAre(0, 1, 10, 11));
  EXPECT_EQ(batched(parts).batch, 2);
  const OwnedPositions s = stacked(parts);
  EXPECT_EQ(s.axes, 2);
  EXPECT_THAT(list(s), ElementsAre(0, 1, 10, 11));
  const OwnedPositions j = join_positions(parts);
  EXPECT_EQ(j.count(), 4);
  EXPECT_THAT(list(with_special_tokens(s, 1, 2)), ElementsAre(0, 0, 1, 0, 0, 0, 10, 11, 0, 0));
  for (const auto& [before, after] : {std::pair{kUnbounded, Index{3}}, {Index{0}, Index{1} << 62}})
    EXPECT_THAT(refusal([&, b = before, e = after] { with_special_tokens(a, b, e); }),
                HasSubstr("[with_special_tokens] before and after must lie between 0 and 2^40"));
  EXPECT_THAT(list(repeated_axes(a, 3)), ElementsAre(0, 1, 0, 1, 0, 1));
  const OwnedPositions mixed[] = {a, shifted(b, 0.5)};
  EXPECT_THAT(reals(stacked(mixed)), ElementsAre(0, 1, 10.5, 11.5));
  const OwnedPositions uneven[] = {a, arange(0, 3)};
  EXPECT_THAT(refusal([&] { batched(uneven); }), HasSubstr("[batched] tokens"));
  EXPECT_THAT(refusal([&] { stacked(uneven); }), HasSubstr("[stacked] tokens"));
  EXPECT_THAT(refusal([&] { batched({}); }), HasSubstr("[batched]"));
}

TEST(Positions, ShiftedStaysExact) {
  EXPECT_THAT(list(shifted(arange(3, 2), Index{-5})), ElementsAre(-2, -1));
  const Index deltas[] = {1, 2};
  const OwnedPositions p = shifted(repeated_axes(arange(0, 2), 2), deltas);
  EXPECT_EQ(p.batch, 2);
  EXPECT_THAT(list(p), ElementsAre(1, 2, 2, 3, 1, 2, 2, 3));
  EXPECT_THAT(refusal([] { shifted(arange(kUnbounded, 1), Index{1}); }), HasSubstr("[shifted]"));
  EXPECT_THAT(refusal([] { shifted(arange(0, 1), NAN); }), HasSubstr("delta must be finite"));
}

TEST(Positions, ExplicitListsAreChecked) {
  EXPECT_EQ(explicit_positions(Integers{1, 2, 3, 4, 5, 6}, 1, 3).count(), 2);
  // In braces: the kind of the numbers is the kind of the positions.
  const OwnedPositions rows = explicit_positions({1, 2}, 2, 1);
  EXPECT_EQ(rows.batch, 2);
  EXPECT_THAT(std::get<Integers>(rows.value), ElementsAre(1, 2));
  EXPECT_THAT(std::get<Integers>(explicit_positions({Index{1} << 40}).value),
              ElementsAre(Index{1} << 40));
  EXPECT_THAT(std::get<std::vector<double>>(explicit_positions({0.5, 2.0}).value),
              ElementsAre(0.5, 2.0));
  EXPECT_THAT(refusal([] { explicit_positions(Integers{1, 2, 3}, 2); }), HasSubstr("[explicit]"));
  EXPECT_THAT(refusal([] { explicit_positions(std::vector<double>{NAN}); }), HasSubstr("finite"));
  EXPECT_THAT(refusal([] { explicit_positions(std::vector<double>{INFINITY}); }),
              HasSubstr("finite"));
  EXPECT_THAT(refusal([] { explicit_positions(Integers{}, 0); }), HasSubstr("batch"));
}

TEST(Positions, SinkCacheAsStreamingLlm) {
  const support::Suite attention("attention");
  Index seen = 5;
  for (int step = 0; step < 7; ++step, ++seen) {
    const std::string at = "step" + std::to_string(step) + "_";
    const Index incoming = step == 0 ? 5 : 1;
    const Integers tokens = sink_cache_tokens(seen, 2, 5);
    EXPECT_EQ(tokens, attention("streaming_llm_llama", at + "tokens_in_cache").integers());
    const CacheSlots slots = cache_slots(static_cast<Index>(tokens.size()) - incoming, incoming);
    EXPECT_EQ(list(slots.query),
              attention("streaming_llm_llama", at + "layer0_query_positions").integers());
    EXPECT_EQ(list(slots.key),
              attention("streaming_llm_llama", at + "layer0_key_positions").integers());
  }
  EXPECT_THAT(refusal([] { sink_cache_tokens(-1, 0, 0); }), HasSubstr("[sink_cache]"));
}

}  // namespace
}  // namespace posenc
