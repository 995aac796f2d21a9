// SPDX-License-Identifier: Apache-2.0
// How tests write terms down.
#pragma once
#include <cstdint>
#include <vector>

#include "posenc/relative/term.h"

namespace posenc {

// first, first + step, ...
inline std::vector<std::int32_t> iota(std::int32_t n, std::int32_t first = 0,
                                      std::int32_t step = 1) {
  std::vector<std::int32_t> v;
  for (std::int32_t i = 0; i < n; ++i) v.push_back(first + i * step);
  return v;
}
// [1, n, d] from a shared table [n, d].
inline ConstTensorView shared(ConstTensorView v) {
  ConstTensorView r = v;
  r.rank = 3;
  r.shape = {1, v.shape[v.rank == 3 ? 1 : 0], v.shape[v.rank == 3 ? 2 : 1], 0, 0};
  r.stride = {0, r.shape[2], 1, 0, 0};
  return r;
}
inline Term rows_term(TermKind kind, double scale, const IndexLine& line,
                      const ConstTensorView& table) {
  Term t;
  t.kind = kind;
  t.scale = scale;
  t.lines[0] = line;
  t.table = table;
  return t;
}

}  // namespace posenc
