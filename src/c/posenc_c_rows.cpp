// SPDX-License-Identifier: Apache-2.0
// The C interface to the caller's rows, to gradients, to cached keys and to tables in files.
#include "c/support.h"
#include "posenc/rotary/rerotate.h"

using namespace posenc::c;
using posenc::Index;

namespace {

posenc::TableLayout row_layout(posenc_row_layout layout) {
  switch (layout) {
    case POSENC_HALF:
      return posenc::TableLayout::half;
    case POSENC_DUPLICATED:
      return posenc::TableLayout::duplicated;
    case POSENC_REPEATED:
      return posenc::TableLayout::repeated;
    case POSENC_PAIRS:
      return posenc::TableLayout::pairs;
    case POSENC_ROW_LAYOUT_NONE:
      break;
  }
  posenc::refuse("c", "the layout of rows must be one of posenc_row_layout",
                 static_cast<Index>(layout));
}

posenc::TensorView optional(const PosencDLTensor* t) {
  return t == nullptr ? posenc::TensorView{} : posenc::from_dlpack(*t);
}

posenc::CallerRows caller_rows(const PosencDLTensor* cos, const PosencDLTensor* sin,
                               posenc_row_layout layout, const PosencDLTensor* index) {
  posenc::CallerRows rows;
  rows.cos = posenc::from_dlpack(need(cos, "cos"));
  rows.sin = posenc::from_dlpack(need(sin, "sin"));
  rows.layout = row_layout(layout);
  if (index != nullptr) rows.index = positions_of(index);
  return rows;
}

// x and the gradient of what came out: both of q or none, both of k or none.
Operands with_gradients(const char* layout, const PosencDLTensor* q, const PosencDLTensor* k,
                        const PosencDLTensor* d_q, const PosencDLTensor* d_k) {
  if ((q == nullptr) != (d_q == nullptr) || (k == nullptr) != (d_k == nullptr))
    posenc::refuse("c", "q goes with d_q and k with d_k");
  return operands(layout, q, k, d_q, d_k);
}

}  // namespace

extern "C" {

posenc_status posenc_apply_caller_rows(const posenc_plan* plan, const char* layout,
                                       const PosencDLTensor* q, const PosencDLTensor* k,
                                       const PosencDLTensor* q_out, const PosencDLTensor* k_out,
                                       const PosencDLTensor* cos, const PosencDLTensor* sin,
                                       posenc_row_layout rows, const PosencDLTensor* index,
                                       posenc_sense sense, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, q_out, k_out);
    need(plan, "plan")
        .plan.apply_rows(o.in, o.out, caller_rows(cos, sin, rows, index), sense_of(sense));
  });
}

posenc_status posenc_phase_gradients_workspace(const posenc_plan* plan, const char* layout,
                                               const PosencDLTensor* q, const PosencDLTensor* k,
                                               size_t* bytes, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, nullptr, nullptr);
    need(bytes, "bytes") = need(plan, "plan").plan.phase_gradients_workspace(o.in);
  });
}

posenc_status posenc_phase_gradients(const posenc_plan* plan, const char* layout,
                                     const PosencDLTensor* q, const PosencDLTensor* k,
                                     const PosencDLTensor* d_q, const PosencDLTensor* d_k,
                                     const PosencDLTensor* positions, int64_t block,
                                     const PosencDLTensor* frequency, const PosencDLTensor* gain,
                                     const PosencDLTensor* position, void* workspace,
                                     size_t workspace_bytes, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = with_gradients(layout, q, k, d_q, d_k);
    if (workspace == nullptr && workspace_bytes > 0)
      posenc::refuse("c", "workspace must not be null");
    const posenc::PhaseGradients wanted{block, optional(frequency), optional(gain),
                                        optional(position)};
    need(plan, "plan")
        .plan.phase_gradients(
            o.in, o.out, positions_of(positions), wanted,
            posenc::Workspace(static_cast<std::byte*>(workspace), workspace_bytes));
  });
}

posenc_status posenc_row_gradients(const posenc_plan* plan, const char* layout,
                                   const PosencDLTensor* q, const PosencDLTensor* k,
                                   const PosencDLTensor* d_q, const PosencDLTensor* d_k,
                                   const PosencDLTensor* cos, const PosencDLTensor* sin,
                                   posenc_row_layout rows, const PosencDLTensor* index,
                                   const PosencDLTensor* d_cos, const PosencDLTensor* d_sin,
                                   posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = with_gradients(layout, q, k, d_q, d_k);
    need(plan, "plan")
        .plan.row_gradients(o.in, o.out, caller_rows(cos, sin, rows, index),
                            {optional(d_cos), optional(d_sin)});
  });
}

posenc_status posenc_can_rerotate(const posenc_plan* from, const posenc_plan* to,
                                  posenc_verdict* verdict, posenc_error* reason,
                                  posenc_error* error) {
  return guarded(error, [&] {
    const posenc::Rerotation r =
        posenc::can_rerotate(need(from, "from").plan.spec(), need(to, "to").plan.spec());
    using Verdict = posenc::Rerotation::Verdict;
    need(verdict, "verdict") = r.verdict == Verdict::exact         ? POSENC_EXACT
                               : r.verdict == Verdict::approximate ? POSENC_APPROXIMATE
                                                                   : POSENC_IMPOSSIBLE;
    report(reason, POSENC_OK, r.reason.c_str());
  });
}

posenc_status posenc_rerotate(const posenc_plan* from, const posenc_plan* to, const char* layout,
                              const PosencDLTensor* keys, const PosencDLTensor* old_positions,
                              const PosencDLTensor* new_positions, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, nullptr, &need(keys, "keys"), nullptr, nullptr);
    posenc::rerotate(o.in.k, need(from, "from").plan.spec(), positions_of(old_positions),
                     need(to, "to").plan.spec(), positions_of(new_positions));
  });
}

posenc_status posenc_table_replace(posenc_table* table, const posenc_plan* plan,
                                   posenc_error* error) {
  return guarded(error,
                 [&] { need(table, "table").table.replace(need(plan, "plan").plan.spec()); });
}

posenc_status posenc_table_save(const posenc_table* table, const char* path,
                                posenc_row_layout layout, posenc_error* error) {
  return guarded(error,
                 [&] { need(table, "table").table.save(&need(path, "path"), row_layout(layout)); });
}

posenc_status posenc_table_map(const char* path, const posenc_plan* plan, int grows,
                               posenc_table** table, posenc_error* error) {
  return guarded(error, [&] {
    const auto beyond = grows != 0 ? posenc::BeyondTable::grow : posenc::BeyondTable::refuse;
    posenc::RotaryTable made =
        posenc::RotaryTable::map(&need(path, "path"), need(plan, "plan").plan.spec(), beyond);
    posenc_table*& out = need(table, "table");
    out = new posenc_table{std::move(made)};
  });
}

}  // extern "C"
