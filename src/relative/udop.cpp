// SPDX-License-Identifier: Apache-2.0
#include "posenc/relative/udop.h"

#include <array>
#include <cmath>

#include "posenc/core/error.h"
#include "relative/t5_tables.h"

namespace posenc::inline v0 {
namespace {

std::array<detail::T5Table, 3> udop_tables(const Udop& x) {
  if (!std::isfinite(x.per_unit) || x.per_unit <= 0)
    refuse_field(Udop::card.name, "per_unit", "must be finite and positive", x.per_unit);
  const auto rule = [&](Index buckets, Index max_distance, Index axis) {
    T5 t{.num_buckets = buckets, .max_distance = max_distance};
    t.axis = axis;
    t.per_unit = axis == 0 ? 0 : x.per_unit;
    return t;
  };
  return {{{"table_1d", rule(x.num_buckets, x.max_distance, 0)},
           {"table_horizontal", rule(x.horizontal_buckets, x.horizontal_max_distance, 1)},
           {"table_vertical", rule(x.vertical_buckets, x.vertical_max_distance, 2)}}};
}

}  // namespace

std::vector<Parameter> Udop::parameters(const ScoreShape& s) const {
  return detail::t5_tables_parameters(Udop::card.name, s, udop_tables(*this));
}

void Udop::lower(const ScoreShape& s, std::span<const ConstTensorView> p, LoweredTerms& out) const {
  detail::lower_t5_tables(Udop::card.name, s, udop_tables(*this), p, out);
  out.requests.scale = 1;
}

void Udop::pull_back(const ScoreShape& s, std::span<const ConstTensorView> p, const CallData&,
                     const LoweredGradient& g, std::span<const TensorView> dp,
                     std::span<const TensorView>) const {
  detail::pull_back_t5_tables(Udop::card.name, s, udop_tables(*this), p.size(), g, dp);
}

}  // namespace posenc::v0
