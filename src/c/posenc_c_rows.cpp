// SPDX-License-Identifier: Apache-2.0
// The C interface to the caller's rows, to gradients and to cached keys.
#include "c/support.h"
#include "posenc/rotary/rerotate.h"

using namespace posenc::c;
using posenc::Index;

namespace {

posenc::TensorView optional_tensor(const PosencDLTensor* t) {
  return t == nullptr ? posenc::TensorView{} : posenc::from_dlpack(*t);
}

posenc::CallerRows caller_rows(const PosencDLTensor* cos, const PosencDLTensor* sin,
                               posenc_row_layout layout, const PosencDLTensor* index) {
  posenc::CallerRows rows;
  rows.cos = posenc::const_from_dlpack(need(cos, "cos"));
  rows.sin = posenc::const_from_dlpack(need(sin, "sin"));
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
                                       posenc_rotate_mode mode, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, q, k, q_out, k_out);
    const posenc::CallerRows given = caller_rows(cos, sin, rows, index);
    const posenc::RotaryPlan& rotary = need(plan, "plan").plan;
    call_with(o, [&](const auto&... x) { rotary.apply_rows(x..., given, mode_of(mode)); });
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
      posenc::refuse_field("c", "workspace", "must not be null");
    const posenc::PhaseGradients wanted{block, optional_tensor(frequency), optional_tensor(gain),
                                        optional_tensor(position)};
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
                            {optional_tensor(d_cos), optional_tensor(d_sin)});
  });
}

posenc_status posenc_can_rerotate(const posenc_plan* from, const posenc_plan* to,
                                  posenc_verdict* verdict, posenc_error* reason,
                                  posenc_error* error) {
  return guarded(error, [&] {
    const posenc::Rerotation r =
        posenc::can_rerotate(need(from, "from").plan.spec(), need(to, "to").plan.spec());
    need(verdict, "verdict") = static_cast<posenc_verdict>(r.verdict);
    report(reason, POSENC_OK, r.reason.c_str());
  });
}

posenc_status posenc_rerotate(const posenc_plan* from, const posenc_plan* to, const char* layout,
                              const PosencDLTensor* keys, const PosencDLTensor* old_positions,
                              const PosencDLTensor* new_positions, posenc_error* error) {
  return guarded(error, [&] {
    const Operands o = operands(layout, nullptr, &need(keys, "keys"), nullptr, nullptr);
    posenc::rerotate(o.out.k, need(from, "from").plan.spec(), positions_of(old_positions),
                     need(to, "to").plan.spec(), positions_of(new_positions));
  });
}

}  // extern "C"
