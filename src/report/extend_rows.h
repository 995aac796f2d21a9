// SPDX-License-Identifier: Apache-2.0
// A table in a file and the same table at another size: what `extend` writes and `plot` draws.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/absolute/extend.h"
#include "posenc/io/array.h"
#include "posenc/io/safetensors_edit.h"
#include "posenc/report/extend.h"
#include "posenc/report/words.h"

namespace posenc::report {

// The options that name a table in a file and its new size. `required`: of extend; plot shares them.
void add_table_words(Words&, ExtendOptions&, bool required);

struct ExtendedRows {
  const SafetensorsEntry* table = nullptr;  // of the index it was read from
  DType dtype = DType::f32;
  std::string order;  // axes of the stored tensor: 1 (size one), t rows, y and x of a grid, c
  TableShape from, to;
  Extension how;
  Index channels = 0;
  Array before, after;  // [rows, channels]
  bool line() const { return is_one_axis(how.how); }
};
// Throws UsageError and InputError.
ExtendedRows extended_rows(const SafetensorsIndex&, const ExtendOptions&);

// Elements of a tensor in `order` -> [rows, channels] and back, by moving bytes.
void move_elements(const std::string& order, const std::vector<Index>& stored_shape,
                   const TableShape& s, Index channels, std::size_t size, const std::byte* from,
                   std::byte* to, bool into_rows);

// "N" or "HxW", each `low` to 10^9.
std::vector<Index> sizes(std::string_view option, std::string_view text, double low = 1);

}  // namespace posenc::report
