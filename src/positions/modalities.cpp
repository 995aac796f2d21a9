// SPDX-License-Identifier: Apache-2.0
#include "posenc/positions/modalities.h"

#include <cmath>

#include "posenc/positions/sequence.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kModalities = "modalities";

void check(const Modality& m, std::int32_t axes) {
  if (m.id < 0) refuse_field(kModalities, "ids", "must not be negative", m.id);
  if (m.positions.batch > 1)
    refuse_field(kModalities, "positions", "must have a batch of 1", m.positions.batch);
  if (static_cast<std::int32_t>(m.stream.size()) != axes)
    refuse_field(kModalities, "stream", "must name an axis for every common axis, or -1, count",
                 static_cast<Index>(m.stream.size()));
  for (const Index s : m.stream)
    if (s < -1 || s >= m.positions.axes)
      refuse_field(kModalities, "stream", "must lie inside the axes of the positions", s);
  for (const std::vector<double>* v : {&m.scale, &m.origin}) {
    if (!v->empty() && static_cast<std::int32_t>(v->size()) != axes)
      refuse(kModalities, "scale and origin must have a number for every common axis, count",
             static_cast<Index>(v->size()));
    for (const double x : *v)
      if (!std::isfinite(x)) refuse(kModalities, "scale and origin must be finite", x);
  }
}

double coordinate(const Modality& m, std::size_t axis, Index token) {
  const Index stream = m.stream[axis];
  if (stream < 0) return static_cast<double>(kAbsent);
  const double p = position_at(m.positions, static_cast<std::int32_t>(stream), 0, token);
  return (m.origin.empty() ? 0 : m.origin[axis]) + (m.scale.empty() ? 1 : m.scale[axis]) * p;
}

}  // namespace

OwnedPositions modality_positions(std::span<const Modality> all, std::int32_t axes) {
  if (all.empty()) refuse(kModalities, "there must be a stretch of tokens");
  if (axes < 1 || axes > 7)
    refuse_field(kModalities, "axes", "must lie between 1 and 7", Index{axes});
  std::vector<double> v;
  for (const Modality& m : all) {
    check(m, axes);
    v.insert(v.end(), static_cast<std::size_t>(m.positions.count()), static_cast<double>(m.id));
  }
  for (std::size_t a = 0; a < static_cast<std::size_t>(axes); ++a)
    for (const Modality& m : all)
      for (Index t = 0; t < m.positions.count(); ++t) v.push_back(coordinate(m, a, t));
  return explicit_positions(std::move(v), 1, axes + 1);
}

}  // namespace posenc::v0
