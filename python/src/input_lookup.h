// SPDX-License-Identifier: Apache-2.0
// Encodings at the input whose rows are rows of their parameters, as they are: tables added at
// positions. They need no plan, which would copy the tables: `embed` reads them where they lie.
#pragma once
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "posenc/absolute/embed.h"
#include "posenc/absolute/input_term.h"

namespace posenc::python {

// What `embed` takes: x, then a table each, with the number of the parameter that the table is.
struct TableParts {
  std::vector<EmbedPart> parts;
  std::vector<std::size_t> parameter;
};
// parameters: those of the encoding, in its order. None: rows that are made or composed in another
// way, another type or shape, real positions. Those calls take a plan, or a plan refuses them.
std::optional<TableParts> table_parts(const std::string& encoding, const ConstTensorView& x,
                                      const ConstTensorView& positions,
                                      std::span<const ConstTensorView> parameters);

// y = x + rows. False: a plan says what is wrong with the call.
bool add_tables(const TableParts&, const TensorView& y);
// d: of x and of every parameter, f64 or f32, accumulated.
bool add_table_gradients(const TableParts&, const ConstTensorView& d_y, const TensorView& d_x,
                         std::span<const TensorView> d_parameters);

}  // namespace posenc::python
