// SPDX-License-Identifier: Apache-2.0
#include "positions/memory.h"

namespace posenc::inline v0::detail {

Memory memory_of(const Positions& p) noexcept {
  ConstTensorView v;
  v.data = p.data;
  v.dtype = p.type;
  v.rank = 3;
  v.shape = {p.axes, p.batch, p.count};
  v.stride = {p.axis_stride, p.batch_stride, p.token_stride};
  return memory_of(v);
}

void check_positions_apart(std::string_view who, const Positions& p,
                           std::initializer_list<Operand> outputs) {
  const Operand at{"positions", memory_of(p)};
  for (const Operand& out : outputs) check_separate(who, at, out);
}

}  // namespace posenc::v0::detail
