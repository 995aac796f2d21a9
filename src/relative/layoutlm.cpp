// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/layoutlm.h"

#include <array>

#include "relative/t5_tables.h"

namespace posenc::inline v0 {
namespace {

std::array<detail::T5Table, 3> layoutlm_tables(const LayoutLm& x, const ScoreShape& s) {
  T5 order{.num_buckets = x.num_buckets, .max_distance = x.max_distance};
  order.heads_first = x.heads_first;
  order.bias_scale = x.scaled ? s.content_scale() : 1;
  T5 box = order;
  box.num_buckets = x.num_buckets_2d;
  box.max_distance = x.max_distance_2d;
  box.axis = 1;
  T5 lower = box;
  lower.axis = 2;
  return {{{"table_1d", order}, {"table_x", box}, {"table_y", lower}}};
}

}  // namespace

std::vector<Parameter> LayoutLm::parameters(const ScoreShape& s) const {
  check_score_shape(s, LayoutLm::card.name);
  std::vector<Parameter> p =
      detail::t5_tables_parameters(LayoutLm::card.name, s, layoutlm_tables(*this, s));
  for (Parameter& x : p) x.initial = {InitialKind::normal, 0, 0.02};
  return p;
}

void LayoutLm::lower(const ScoreShape& s, std::span<const ConstTensorView> p,
                     LoweredTerms& out) const {
  check_score_shape(s, LayoutLm::card.name);
  detail::lower_t5_tables(LayoutLm::card.name, s, layoutlm_tables(*this, s), p, out);
}

void LayoutLm::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                         const LoweredGradient& g, std::span<const TensorView> dp,
                         std::span<const TensorView>) const {
  check_score_shape(s, LayoutLm::card.name);
  detail::pull_back_t5_tables(LayoutLm::card.name, s, layoutlm_tables(*this, s), p.size(), g, dp);
}

}  // namespace posenc::v0
