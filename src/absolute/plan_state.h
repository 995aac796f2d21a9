// SPDX-License-Identifier: Apache-2.0
// What an input plan prepares, and the checks that its calls share.
#pragma once
#include <cstdint>
#include <vector>

#include "kernels/compose.h"
#include "posenc/absolute/plan.h"

namespace posenc::inline v0::detail {

struct InputPlanState {
  DType dtype = DType::f32;
  Index element_size = 4;
  ComposeKernels kernels{};
  AccessPattern access = AccessPattern::sequential;
  LoweredInput lowered;  // a copy: what the double path reads
  std::vector<ComposeSource> sources;
  Index appended = 0;
  bool additive = true;          // every term is added or appended
  bool needs_positions = false;  // some term has no rows of the caller's
  bool has_rows = false;         // some term has them
  bool layered = false;          // some term has dense layers: the double path takes the calls
  // What the sources point into.
  std::vector<std::vector<std::uint32_t>> turns;
  std::vector<std::vector<std::uint64_t>> wide;
  std::vector<std::vector<double>> per_unit, wide_steps;
  std::vector<std::vector<float>> narrow_steps;
  std::vector<std::vector<std::byte>> tables;
};

// A tensor of tokens as the kernels take it, with its shape.
template <class Data>
struct BasicComposeView {
  BasicComposeTensor<Data> tensor;
  Index batch = 1, tokens = 0, width = 0;
};
using ComposeView = BasicComposeView<void>;
using ConstComposeView = BasicComposeView<const void>;
// Throws [input_plan] "`what` must ...".
ComposeView compose_view(const InputPlanState&, const TensorView&, const char* what);
ConstComposeView compose_view(const InputPlanState&, const ConstTensorView&, const char* what);
// Throws [input_plan]: channels of a term outside those of x, `width`, and of what was appended
// before.
void check_windows(const InputPlanState&, Index width);
// Throws [input_plan]: positions that do not fit the tokens, are not finite, or have no row.
void check_positions(const InputPlanState&, const Positions&, Index batch, Index tokens);
// Runs items of a call, on several threads when there is enough to do.
void run_compose(const InputPlanState&, ComposeCall&, const Executor&);

}  // namespace posenc::v0::detail
