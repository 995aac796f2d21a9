// SPDX-License-Identifier: Apache-2.0
// Arrays of a case made ready for a plan, and results put back in the order of the wanted array.
#pragma once
#include <cstring>
#include <utility>
#include <vector>

#include "conformance/runner/axes.h"
#include "conformance/runner/check.h"
#include "posenc/core/error.h"
#include "posenc/core/heads.h"

namespace posenc::conformance {

// The dtype a check runs in: the wider of what goes in and what is wanted. Nothing is narrowed.
DType wider(DType, DType);
// Dense copy of a slice in `dtype`, which must hold its values exactly.
Array dense(const Slice&, DType);
// A dense array of T, whose dtype that must be. Throws where the values do not fill the shape.
template <class T>
Array converted(const std::vector<double>& values, DType dtype, std::vector<Index> shape) {
  Array a = make_array(dtype, std::move(shape));
  if (a.bytes.size() != values.size() * sizeof(T))
    refuse_field("case", "numbers", "must fill their shape, without a rest",
                 static_cast<Index>(values.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const T x = number_as<T>(values[i]);
    std::memcpy(a.bytes.data() + i * sizeof(T), &x, sizeof(T));
  }
  return a;
}

// Queries, keys or gradients: letters b, t, h, d.
struct HeadsArray {
  Array data;
  Axes axes;
  Heads view();
};
// The letters of an array: `axes` of the check by name, else `fallback`, else thd for three axes.
std::string letters_of(const Check&, const Slice&, std::string_view fallback = {});
HeadsArray heads_of(const Slice&, DType, std::string_view letters, Index head_dim);
// [batch, tokens, heads, channels] of parts that differ in their tokens alone; `tokens` is their sum.
HeadsArray behind_each_other(const std::vector<HeadsArray>& parts, Index tokens, const char* name);
// Compares with out[ours]; its letters default to those that went in.
void expect_heads(Check&, std::string_view ours, HeadsArray& got, std::string_view letters,
                  Index head_dim);

}  // namespace posenc::conformance
