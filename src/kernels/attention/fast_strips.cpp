// SPDX-License-Identifier: Apache-2.0
// The loops of the fast attention engine, for every instruction set.
#include "kernels/attention/fast_strips.h"

#include "core/isa_table.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/attention/fast_strips.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#include "kernels/attention/fast_pack-inl.h"
#include "kernels/attention/fast_pack_blocks-inl.h"
#include "kernels/attention/fast_products-inl.h"

HWY_BEFORE_NAMESPACE();
namespace posenc::inline v0::detail {
namespace HWY_NAMESPACE {
namespace {

constexpr FastKernels kKernels{
    kLanes,
    kStripRows,
    kFewRows,
    kBlockKeys,
    {{Strip<kStripRows, false>, Strip<kStripRows, true>},
     {Strip<kFewRows, false>, Strip<kFewRows, true>}},
    {{Rescale<kStripRows, false>, Rescale<kStripRows, true>},
     {Rescale<kFewRows, false>, Rescale<kFewRows, true>}},
    {PackKeys<float>, PackKeys<Float16>, PackKeys<BFloat16>, PackKeyBlocks},
    {PackValues<float>, PackValues<Float16>, PackValues<BFloat16>, PackValueBlocks},
    {TakeRow<float>, TakeRow<Float16>, TakeRow<BFloat16>, TakeRowOfBlocks},
    {TakeRows<float>, TakeRows<Float16>, TakeRows<BFloat16>, TakeRowsOfBlocks},
    {AreRowsBounded<float>, AreRowsBounded<Float16>, AreRowsBounded<BFloat16>, AreBlocksBounded},
    {DotRows<float>, DotRows<Float16>, DotRows<BFloat16>, DotRowsOfBlocks},
    Exponentials2,
    NarrowRelative,
    AddLanes,
    AddScaledRows,
    WriteScaledRows,
    SplitSums,
    FinishSums,
    {PutRows<float>, PutRows<Float16>, PutRows<BFloat16>}};

}  // namespace

const FastKernels* table_of_fast() {
  return &kKernels;
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::v0::detail
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::inline v0::detail {
HWY_EXPORT(table_of_fast);
const FastKernels& fast_kernels(Isa isa) {
  return isa_kernels(HWY_DISPATCH_TABLE(table_of_fast), isa);
}
}  // namespace posenc::v0::detail
#endif
