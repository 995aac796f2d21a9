// SPDX-License-Identifier: Apache-2.0
// Every refusal of every call: an ArgumentError that names the argument, thrown before a number of any
// output changed. Sizes, strides and pointers of the table end in overflows and reads behind arrays
// where a check is missing, so the sanitizers of `./test --full` run it too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "attention/refusals_world.h"
#include "posenc/core/error.h"

namespace posenc {
namespace {

using test::RefusalCall;
using test::RefusalWorld;
using ::testing::HasSubstr;
using W = RefusalWorld;

constexpr Index kHuge = Index{1} << 41, kFar = Index{1} << 60;

struct SpoiltCall {
  std::string says;
  std::vector<std::string> calls;
  std::function<void(W&)> spoil;
};
using Names = std::vector<std::string>;

const Names kForward{"attend", "selective", "plan"},
    kBackward{"attend_backward", "selective_backward", "plan_backward"},
    kOwn{"attend", "attend_backward", "attend_scores", "selective", "selective_backward"},
    kAll{"attend", "attend_backward", "attend_scores", "selective", "selective_backward",
         "plan",   "plan_backward",   "plan_scores"},
    kPath{"path", "path_backward"}, kMerge{"merge", "merge_backward"},
    kPlan{"plan", "plan_backward", "plan_scores"};

TensorView on_device(TensorView v) {
  v.device = Device::cuda;
  return v;
}

std::vector<SpoiltCall> spoilt_inputs() {
  return {
      {"q must be f64, f32, f16 or bf16", kAll, [](W& w) { w.a.q.dtype = DType::i32; }},
      {"k must be f64, f32, f16 or bf16", kAll, [](W& w) { w.a.k.dtype = DType::i32; }},
      {"k in q8_0 blocks must have head size / 32 * 34 bytes", kOwn,
       [](W& w) { w.a.k.dtype = DType::u8; }},
      {"v in q8_0 blocks must have head size / 32 * 34 bytes", kOwn,
       [](W& w) { w.a.v.dtype = DType::u8; }},
      {"q must have sizes from 0 to 2^40", kAll, [](W& w) { w.a.q.batch = -1; }},
      {"q must have sizes from 0 to 2^40", kAll,
       [](W& w) { w.a.q.tokens = std::numeric_limits<Index>::min(); }},
      {"v must have sizes from 0 to 2^40", kOwn, [](W& w) { w.a.v.dim = -1; }},
      {"k must have sizes from 0 to 2^40", kAll,
       [](W& w) { w.a.k.tokens = kHuge, w.a.k.token_stride = 0; }},
      {"q must have at most 2^48 numbers", kAll,
       [](W& w) {
         w.a.q.batch = w.a.q.tokens = Index{1} << 30, w.a.q.batch_stride = w.a.q.token_stride = 0;
       }},
      {"q must have strides that reach less than 2^61 bytes", kAll,
       [](W& w) { w.a.q.token_stride = kFar; }},
      {"q must have strides that reach less than 2^61 bytes", kAll,
       [](W& w) { w.a.q.token_stride = std::numeric_limits<Index>::min(); }},
      {"q must not be null", kAll, [](W& w) { w.a.q.data = nullptr; }},
      {"k must have the head size of q", kOwn, [](W& w) { w.a.k.dim = 1; }},
      {"v must have the tokens of k", kAll, [](W& w) { w.a.v.tokens = 3; }},
      {"scale must be given", kOwn, [](W& w) { w.a.scale.reset(); }},
      {"scale must be finite", kOwn, [](W& w) { w.a.scale = NAN; }},
      {"scale of the call must be absent", kPlan, [](W& w) { w.a.scale = 3; }},
      {"softcap must be finite", kOwn, [](W& w) { w.a.softcap = -1; }},
      {"dropout", kOwn, [](W& w) { w.a.dropout = 0.1; }},
      {"window_left must not be negative", kAll, [](W& w) { w.a.mask.window_left = -1; }},
      {"window_right must be -1 or more", kAll, [](W& w) { w.a.mask.window_right = -2; }},
      {"chunk must not be negative", kAll, [](W& w) { w.a.mask.chunk = -1; }},
      {"query_offset must lie", kAll,
       [](W& w) { w.a.mask.query_offset = std::numeric_limits<Index>::max(); }},
      {"query_offset must lie below 2^62 - queries",
       {"selective", "selective_backward"},
       [](W& w) { w.a.mask.query_offset = Index{1} << 62; }},
      {"must not be given", {"selective", "selective_backward"}, [](W& w) { w.a.softcap = 2; }},
      {"head must be one of the query heads",
       {"selective", "selective_backward"},
       [](W& w) { w.options.head = 2; }},
      {"inputs", kPlan,
       [](W& w) {
         w.inputs.push_back({"hidden", w.parameters[0].array});
       }},
      {"of the plan", kPlan, [](W& w) { w.a.q.heads = 1; }},
  };
}

std::vector<SpoiltCall> spoilt_positions() {
  return {
      {"query_positions must be i64, i32 or f64", kAll,
       [](W& w) { w.a.query_positions.type = DType::u8; }},
      {"key_positions must be i64, i32 or f64", kAll,
       [](W& w) { w.a.key_positions.type = DType::f32; }},
      {"query_positions must have at least one axis", kAll,
       [](W& w) { w.a.query_positions.axes = -1; }},
      {"key_positions must have at least one axis", kAll, [](W& w) { w.a.key_positions.axes = 0; }},
      {"query_positions must not be null where there are tokens", kAll,
       [](W& w) { w.a.query_positions.data = nullptr; }},
      {"query_positions must be one for each of the 0 tokens", kPlan,
       [](W& w) {
         w.a.q.tokens = 0, w.a.query_positions.data = nullptr, w.a.query_positions.count = 5;
       }},
      {"key_positions must be one for each of the 66 tokens", kAll,
       [](W& w) { w.a.key_positions.count = 67; }},
      {"query_positions must have 1 row, one for each batch entry; several axes are [axes, 1, 66], "
       "got 2",
       kAll, [](W& w) { w.a.query_positions.batch = 2; }},
      {"query_positions must have sizes from 0 to 2^40", kAll,
       [](W& w) { w.a.query_positions.batch = -1; }},
      {"query_positions must have strides", kAll,
       [](W& w) { w.a.query_positions.token_stride = kFar; }},
  };
}

std::vector<SpoiltCall> spoilt_outputs() {
  return {
      {"out must have the tokens of q", kForward, [](W& w) { w.r.out.tokens = 3; }},
      {"out must have the dtype of q", kForward, [](W& w) { w.r.out.dtype = DType::f32; }},
      {"out must not be null", kForward, [](W& w) { w.r.out.data = nullptr; }},
      {"out must have strides", kForward, [](W& w) { w.r.out.token_stride = kFar; }},
      {"log_sum_exp must be in the CPU's memory", kForward,
       [](W& w) { w.r.log_sum_exp = on_device(w.r.log_sum_exp); }},
      {"log_sum_exp must be [batch, heads, queries]", kForward,
       [](W& w) { w.r.log_sum_exp.shape[2] = 3; }},
      {"out must not overlap q", kForward,
       [](W& w) { w.r.out.data = const_cast<void*>(w.a.q.data); }},
      {"must not overlap", kForward, [](W& w) { w.r.log_sum_exp.data = w.r.out.data; }},
      {"elements of out must not share memory", kForward, [](W& w) { w.r.out.token_stride = 0; }},
      {"content must be [batch, heads, queries, keys]",
       {"attend_scores", "plan_scores"},
       [](W& w) { w.s.content.shape[3] = 2; }},
      {"scores must be in the CPU's memory",
       {"attend_scores", "plan_scores"},
       [](W& w) { w.s.scores = on_device(w.s.scores); }},
      {"must not overlap",
       {"attend_scores", "plan_scores"},
       [](W& w) { w.s.scores.data = w.s.content.data; }},
  };
}

std::vector<SpoiltCall> spoilt_gradients() {
  return {
      {"the result must have the shape of the output", kBackward,
       [](W& w) { w.result.out.tokens = 3; }},
      {"the gradient of the result must have the shape", kBackward,
       [](W& w) { w.d_result.out.tokens = 3; }},
      {"the gradient of the result must have the shape", kBackward,
       [](W& w) { w.d_result.out.data = nullptr; }},
      {"the gradient of the result must have strides", kBackward,
       [](W& w) { w.d_result.out.head_stride = kFar; }},
      {"the gradient of the result log_sum_exp must be [batch, heads, queries]", kBackward,
       [](W& w) {
         w.d_result.log_sum_exp.shape = {1, 1, 2};
       }},
      {"the gradient of the result log_sum_exp must be in the CPU's memory", kBackward,
       [](W& w) { w.d_result.log_sum_exp.device = Device::cuda; }},
      {"the result log_sum_exp must be in the CPU's memory", kBackward,
       [](W& w) { w.result.log_sum_exp.device = Device::cuda; }},
      {"gradient of q must have its shape", kBackward, [](W& w) { w.g.q.tokens = 3; }},
      {"gradient of k must be f64 or f32", kBackward, [](W& w) { w.g.k.dtype = DType::bf16; }},
      {"gradient of v must have strides", kBackward, [](W& w) { w.g.v.token_stride = kFar; }},
      {"gradient of sink is given", kBackward,
       [](W& w) { w.g.sink = tensor(w.memory[w.outputs[0]].data(), {W::H}); }},
      {"must not overlap", kBackward,
       [](W& w) { w.g.q.data = const_cast<void*>(w.d_result.out.data); }},
      // Over rows of another block.
      {"must not overlap", kBackward,
       [](W& w) {
         w.g.k.data = static_cast<double*>(const_cast<void*>(w.d_result.out.data)) + 64;
       }},
      {"must not overlap", kBackward, [](W& w) { w.g.k.data = const_cast<void*>(w.a.q.data); }},
      {"must be the same view or not overlap", kBackward,
       [](W& w) { w.g.k.data = static_cast<double*>(w.g.v.data) + 1; }},
      {"the gradient of table must have the shape [8, 2]",
       {"plan_backward"},
       [](W& w) { w.named[0].array.shape[0] = 7; }},
      {"the gradient of table must be f64 or f32",
       {"plan_backward"},
       [](W& w) { w.named[0].array.dtype = DType::bf16; }},
      {"the gradient of table must be in the CPU's memory",
       {"plan_backward"},
       [](W& w) { w.named[0].array.device = Device::cuda; }},
      {"the gradient of table must have strides",
       {"plan_backward"},
       [](W& w) { w.named[0].array.stride[0] = kFar; }},
      {"must be the same view or not overlap",
       {"plan_backward"},
       [](W& w) { w.named[0].array.data = w.g.q.data; }},
      {"must not overlap the gradient of out",
       {"plan_backward"},
       [](W& w) { w.named[0].array.data = const_cast<void*>(w.d_result.out.data); }},
      {"must not overlap q",
       {"plan_backward"},
       [](W& w) { w.named[0].array.data = const_cast<void*>(w.a.q.data); }},
      {"elements of the gradient of table must not share",
       {"plan_backward"},
       [](W& w) { w.named[0].array.stride[0] = 0; }},
      {"a gradient must be given once",
       {"plan_backward"},
       [](W& w) { w.named.push_back(w.named[0]); }},
      {"gradients must be one of table",
       {"plan_backward"},
       [](W& w) { w.named[0].name = "tabel"; }},
  };
}

std::vector<SpoiltCall> spoilt_merges() {
  const Names kForwardMerge{"merge"}, kBackwardMerge{"merge_backward"};
  return {
      {"a part log_sum_exp must be in the CPU's memory", kMerge,
       [](W& w) { w.parts[1].log_sum_exp.device = Device::cuda; }},
      {"a part must have log_sum_exp", kMerge, [](W& w) { w.parts[1].log_sum_exp = {}; }},
      {"a part must have the shape of the whole", kMerge, [](W& w) { w.parts[1].out.tokens = 3; }},
      {"a part must have strides", kMerge, [](W& w) { w.parts[0].out.token_stride = kFar; }},
      {"parts must be of softmax or stick_breaking", kMerge,
       [](W& w) { w.how = Normalisation::stick_breaking_own; }},
      {"the whole must have sizes from 0 to 2^40", kForwardMerge,
       [](W& w) { w.whole.out.batch = -1; }},
      {"the whole log_sum_exp must be in the CPU's memory", kForwardMerge,
       [](W& w) { w.whole.log_sum_exp.device = Device::cuda; }},
      {"must be the same view or not overlap", kForwardMerge,
       [](W& w) {
         w.whole.out.data = static_cast<double*>(const_cast<void*>(w.parts[0].out.data)) + 1;
       }},
      {"there must be a gradient for each part", kBackwardMerge,
       [](W& w) { w.d_parts.pop_back(); }},
      {"the gradient of a part must be f64 or f32", kBackwardMerge,
       [](W& w) { w.d_parts[1].out.dtype = DType::f16; }},
      {"the gradient of a part log_sum_exp must be in the CPU's memory", kBackwardMerge,
       [](W& w) { w.d_parts[1].log_sum_exp.device = Device::cuda; }},
      {"the gradient of the whole log_sum_exp must be in the CPU's memory", kBackwardMerge,
       [](W& w) { w.d_result.log_sum_exp.device = Device::cuda; }},
      {"must not overlap", kBackwardMerge,
       [](W& w) { w.d_parts[1].out.data = const_cast<void*>(w.parts[0].out.data); }},
  };
}

std::vector<SpoiltCall> spoilt_paths() {
  const Names kForwardPath{"path"}, kBackwardPath{"path_backward"};
  return {
      {"w must be given", kPath, [](W& w) { w.p.w = {}; }},
      {"q must have sizes from 0 to 2^40", kPath, [](W& w) { w.p.q.batch = -1; }},
      {"v must have sizes from 0 to 2^40", kPath, [](W& w) { w.p.v.dim = -1; }},
      {"k must have sizes from 0 to 2^40", kPath,
       [](W& w) { w.p.k.tokens = kHuge, w.p.k.token_stride = 0; }},
      {"k must have strides", kPath,
       [](W& w) { w.p.k.head_stride = 0, w.p.k.token_stride = kFar; }},
      {"v must have the tokens of k, 66", kPath, [](W& w) { w.p.v.tokens = 3; }},
      {"w must have 2 channels", kPath, [](W& w) { w.p.w.dim = 1; }},
      {"scale must be finite", kPath, [](W& w) { w.p.scale = INFINITY; }},
      {"queries must be among the keys", kPath, [](W& w) { w.p.query_offset = 1; }},
      {"window_left must not be negative", kPath, [](W& w) { w.p.window_left = -1; }},
      {"out must be of a float type and have the shape", kForwardPath,
       [](W& w) { w.r.out.tokens = 3; }},
      {"log_sum_exp must be in the CPU's memory", kForwardPath,
       [](W& w) { w.r.log_sum_exp = on_device(w.r.log_sum_exp); }},
      {"out must not overlap", kForwardPath,
       [](W& w) { w.r.out.data = const_cast<void*>(w.p.q.data); }},
      {"the gradient of out must be of a float type and have the shape", kBackwardPath,
       [](W& w) { w.d_result.out.tokens = 3; }},
      {"log_sum_exp must be in the CPU's memory", kBackwardPath,
       [](W& w) { w.d_result.log_sum_exp.device = Device::cuda; }},
      {"the gradient of k must have its shape", kBackwardPath, [](W& w) { w.pg.k.tokens = 3; }},
      {"the gradient of k must have strides", kBackwardPath,
       [](W& w) { w.pg.k.token_stride = kFar; }},
      {"the gradient of beta must not overlap", kBackwardPath,
       [](W& w) { w.pg.beta.data = const_cast<void*>(w.d_result.out.data); }},
  };
}

void expect_refused(const RefusalCall& call, const SpoiltCall& spoilt) {
  SCOPED_TRACE(call.name + ": " + spoilt.says);
  W w;
  const auto before = w.written();
  spoilt.spoil(w);
  std::string what = "accepted";
  try {
    call.run(w);
  } catch (const ArgumentError& e) {
    what = e.what();
    EXPECT_FALSE(e.field().empty()) << what << " names no argument";
  } catch (const std::exception& e) {
    what = std::string("another error: ") + e.what();
  }
  EXPECT_THAT(what, HasSubstr(spoilt.says));
  EXPECT_TRUE(w.written() == before) << "an output was written";
}

void expect_all_refused(const std::vector<SpoiltCall>& table) {
  const std::vector<RefusalCall> calls = test::refusal_calls();
  for (const SpoiltCall& spoilt : table)
    for (const std::string& name : spoilt.calls) {
      const auto call = std::find_if(calls.begin(), calls.end(),
                                     [&](const RefusalCall& c) { return c.name == name; });
      ASSERT_NE(call, calls.end()) << name;
      expect_refused(*call, spoilt);
    }
}

TEST(RefusalsWriteNothing, WhatIsNotSpoiltIsAcceptedAndWritten) {
  for (const RefusalCall& call : test::refusal_calls()) {
    W w;
    const auto before = w.written();
    EXPECT_NO_THROW(call.run(w)) << call.name;
    EXPECT_FALSE(w.written() == before) << call.name;
  }
}

TEST(RefusalsWriteNothing, Inputs) {
  expect_all_refused(spoilt_inputs());
}
TEST(RefusalsWriteNothing, PositionsOfACall) {
  expect_all_refused(spoilt_positions());
}
TEST(RefusalsWriteNothing, Outputs) {
  expect_all_refused(spoilt_outputs());
}
TEST(RefusalsWriteNothing, Gradients) {
  expect_all_refused(spoilt_gradients());
}
TEST(RefusalsWriteNothing, Merges) {
  expect_all_refused(spoilt_merges());
}
TEST(RefusalsWriteNothing, Paths) {
  expect_all_refused(spoilt_paths());
}

// Pages whose sizes together pass 64 bits, and positions that no call reads.
TEST(RefusalsWriteNothing, SizesThatWrapAround) {
  W w;
  const std::int32_t page = 0;
  const Index length = 4;
  ConstTensorView table = tensor(&page, {1, 1});
  table.shape[1] = Index{1} << 36, table.stride[1] = 0;
  w.a.block_table = table;
  w.a.mask.key_length = tensor(&length, {1});
  w.a.key_positions = {};
  const auto says = [](const auto& call) {
    try {
      call();
    } catch (const ArgumentError& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_THAT(says([&] { attend(w.a, w.r); }),
              HasSubstr("block_table must hold at most 2^40 keys"));
  Positions p = w.at;
  p.axes = -1;
  EXPECT_THAT(says([&] { distance_ranges(p, p); }),
              HasSubstr("[distance] positions of queries must have at least one axis"));
  p = w.at, p.type = DType::u8;
  EXPECT_THAT(says([&] { distance_ranges(w.at, p); }),
              HasSubstr("[distance] positions of keys must be i64, i32 or f64"));
  p = w.at, p.data = nullptr;
  EXPECT_THAT(says([&] { distance_ranges(p, w.at); }),
              HasSubstr("positions of queries must not be null"));
  ProductTerm t;
  const std::int32_t row = 0;
  t.lines[0] = {.row = &row, .count = Index{1} << 62};
  EXPECT_THAT(says([&] { check_rows(t); }), HasSubstr("a line must have at most 2^40 rows"));
  t.lines[0] = {};
  t.pair.row = &row, t.pair.query_classes = t.pair.key_classes = Index{1} << 40;
  EXPECT_THAT(says([&] { check_rows(t); }), HasSubstr("a pair must have at most 2^40 rows"));
}

// Copies in double that no machine holds are refused with their size, not by the allocator.
TEST(RefusalsWriteNothing, MemoryThatNoMachineHas) {
  W w;
  w.a.k.tokens = w.a.v.tokens = Index{1} << 40, w.a.k.token_stride = w.a.v.token_stride = 0;
  w.a.key_positions = {}, w.a.query_positions = {};
  const auto before = w.written();
  try {
    attend(w.a, w.r);
    ADD_FAILURE() << "accepted";
  } catch (const OutOfMemory& e) {
    EXPECT_THAT(e.what(), HasSubstr("[attention] q, k and v in double"));
  }
  EXPECT_TRUE(w.written() == before);
}

}  // namespace
}  // namespace posenc
