// SPDX-License-Identifier: Apache-2.0
// The loops of the exact attention engine, for every instruction set.
#include "kernels/attention/exact_rows.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/exact_rows.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/exact_products-inl.h"
#include "kernels/attention/exact_softmax-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

constexpr ExactRowKernels kKernels{Dots, AddWeighted, AddOuter,     Scale, ScaleAdd,
                                   Add,  Largest,     Exponentials, Dot,   SoftmaxBackward};

}  // namespace

const ExactRowKernels* table_of_exact_rows() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_exact_rows);
const ExactRowKernels& exact_row_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_exact_rows), isa);
}
}  // namespace posenc::v0::detail
#endif
