// SPDX-License-Identifier: Apache-2.0
#include "posenc/attention/locality.h"

#include <algorithm>
#include <cmath>

#include "attention/exact/call_view.h"
#include "core/shape.h"
#include "posenc/attention/plan.h"
#include "posenc/core/error.h"
#include "posenc/positions/sequence.h"

namespace posenc::inline v0 {
namespace {

constexpr std::string_view kLocality = "locality";
constexpr Index kMostDistances = Index{1} << 24;

void check_positions(const Positions& p, const char* what, Index batch, Index tokens) {
  if (p.count != tokens)
    refuse_field(kLocality, std::string(what) + " positions",
                 "must be as many as the tokens, " + std::to_string(tokens), p.count);
  if (p.batch != 1 && p.batch != batch)
    refuse_field(kLocality, std::string(what) + " positions",
                 "must have 1 or " + std::to_string(batch) + " rows", p.batch);
}

// Rows that see a key, at least 1.
double rows_that_see(const ConstTensorView& p, Index head) {
  Index rows = 0;
  for (Index b = 0; b < p.shape[0]; ++b)
    for (Index i = 0; i < p.shape[2]; ++i) {
      bool sees = false;
      for (Index j = 0; j < p.shape[3] && !sees; ++j)
        sees = detail::read_number(p, b, head, i, j) != 0;
      rows += sees ? 1 : 0;
    }
  return static_cast<double>(std::max<Index>(rows, 1));
}

}  // namespace

Locality locality(const ConstTensorView& p, const Positions& query, const Positions& key) {
  if (p.dtype != DType::f64 && p.dtype != DType::f32)
    refuse_field(kLocality, "probabilities", "must be f64 or f32", dtype_name(p.dtype));
  if (p.rank != 4)
    detail::refuse_shape(kLocality, "probabilities", "must be [batch, heads, queries, keys]", p);
  check_positions(query, "query", p.shape[0], p.shape[2]);
  check_positions(key, "key", p.shape[0], p.shape[3]);
  const DistanceRange range = distance_ranges(query, key)[0];
  if (range.max - range.min >= kMostDistances)
    refuse_field(kLocality, "distances", "must be at most 16777216", range.max - range.min + 1);
  const Index n = range.max - range.min + 1;
  Locality out;
  for (Index d = range.min; d <= range.max; ++d) out.distance.push_back(d);
  out.mass.assign(static_cast<std::size_t>(p.shape[1] * n), 0.0);
  for (Index h = 0; h < p.shape[1]; ++h) {
    const double rows = rows_that_see(p, h);
    for (Index b = 0; b < p.shape[0]; ++b)
      for (Index i = 0; i < p.shape[2]; ++i) {
        const double at = position_at(query, 0, query.batch == 1 ? 0 : b, i);
        for (Index j = 0; j < p.shape[3]; ++j) {
          const double delta = at - position_at(key, 0, key.batch == 1 ? 0 : b, j);
          const Index slot = h * n + static_cast<Index>(std::floor(delta)) - range.min;
          out.mass[static_cast<std::size_t>(slot)] += detail::read_number(p, b, h, i, j) / rows;
        }
      }
  }
  return out;
}

}  // namespace posenc::v0
