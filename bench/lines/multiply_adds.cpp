// SPDX-License-Identifier: Apache-2.0
// Multiply-adds of one thread for each instruction set: sums in 12 vectors, which fit the registers of each and cover
// the latency of two units. Without a fused instruction a multiply-add is a product and a sum.
#include "multiply_adds.h"

#include "posenc/core/isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lines/multiply_adds.cpp"
#include <hwy/foreach_target.h>  // NOLINT: includes this file once a target

#include <hwy/highway.h>

#if defined(POSENC_BENCH_KERNELS)
#include "core/isa_table.h"
#endif

HWY_BEFORE_NAMESPACE();
namespace posenc::bench {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
double sums(std::size_t n, double start) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const V factor = hn::Set(d, static_cast<T>(0.999999)), addend = hn::Set(d, static_cast<T>(1e-6));
  const auto from = [&](double more) { return hn::Set(d, static_cast<T>(start + more * 1e-3)); };
  V a = from(0), b = from(1), c = from(2), e = from(3), f = from(4), g = from(5);
  V h = from(6), i = from(7), j = from(8), k = from(9), l = from(10), m = from(11);
  for (std::size_t done = 0; done < n; done += 12 * hn::Lanes(d)) {
    a = hn::MulAdd(a, factor, addend), b = hn::MulAdd(b, factor, addend);
    c = hn::MulAdd(c, factor, addend), e = hn::MulAdd(e, factor, addend);
    f = hn::MulAdd(f, factor, addend), g = hn::MulAdd(g, factor, addend);
    h = hn::MulAdd(h, factor, addend), i = hn::MulAdd(i, factor, addend);
    j = hn::MulAdd(j, factor, addend), k = hn::MulAdd(k, factor, addend);
    l = hn::MulAdd(l, factor, addend), m = hn::MulAdd(m, factor, addend);
  }
  const V first = hn::Add(hn::Add(hn::Add(a, b), hn::Add(c, e)), hn::Add(f, g));
  const V second = hn::Add(hn::Add(hn::Add(h, i), hn::Add(j, k)), hn::Add(l, m));
  return static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(first, second))));
}

double sums_f32(std::size_t n, double start) {
  return sums<float>(n, start);
}
double sums_f64(std::size_t n, double start) {
  return sums<double>(n, start);
}
std::size_t floats_of_a_vector() {
  return hn::Lanes(hn::ScalableTag<float>());
}

}  // namespace HWY_NAMESPACE
}  // namespace posenc::bench
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace posenc::bench {
namespace {

HWY_EXPORT(sums_f32);
HWY_EXPORT(sums_f64);
HWY_EXPORT(floats_of_a_vector);

}  // namespace

std::vector<MultiplyAdds> multiply_adds() {
  std::vector<MultiplyAdds> all;
#if defined(POSENC_BENCH_KERNELS)
  for (const Isa isa : supported_isas())
    all.push_back({std::string(isa_name(isa)),
                   isa_entry(HWY_DISPATCH_TABLE(floats_of_a_vector), isa)(),
                   isa_entry(HWY_DISPATCH_TABLE(sums_f32), isa),
                   isa_entry(HWY_DISPATCH_TABLE(sums_f64), isa)});
#else
  // A shared library does not say which of Highway's targets an instruction set is: the best alone.
  (void)HWY_DYNAMIC_DISPATCH(floats_of_a_vector)();
  all.push_back({"best", HWY_DYNAMIC_DISPATCH(floats_of_a_vector)(), HWY_DYNAMIC_POINTER(sums_f32),
                 HWY_DYNAMIC_POINTER(sums_f64)});
#endif
  return all;
}

MultiplyAdds multiply_adds_in_use() {
  const std::vector<MultiplyAdds> all = multiply_adds();
  for (const MultiplyAdds& m : all)
    if (m.isa == isa_name(active_isa())) return m;
  return all.back();
}

}  // namespace posenc::bench
#endif  // HWY_ONCE
