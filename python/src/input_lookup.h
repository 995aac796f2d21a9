// SPDX-License-Identifier: Apache-2.0
// Encodings at the input whose rows are rows of their parameters, as they are: tables added at
// positions. They need no plan, which would copy the tables: `embed` reads them where they lie.
#pragma once
#include <optional>
#include <span>
#include <vector>

#include "posenc/absolute/embed.h"
#include "posenc/registry.h"

namespace posenc::python {

// One table: y += gain * parameter[position on the axis + offset].
struct LookedUp {
  std::size_t parameter;
  Index rows, width;
  std::int32_t axis;
  Index offset;
  double gain;
  std::optional<Index> frozen;
};
struct Lookup {
  double input_gain = 1;
  std::vector<LookedUp> tables;
};
// None: rows that are made in another way, or composed in another way than by adding them.
std::optional<Lookup> lookup_of(const Encoding&);

// x, then the tables, as parts of `embed`. None: another type, shape or kind of positions, which
// takes a plan or which a plan refuses.
std::optional<std::vector<EmbedPart>> parts_of(const Lookup&, const ConstTensorView& x,
                                               const ConstTensorView& positions,
                                               std::span<const ConstTensorView> parameters);

}  // namespace posenc::python
