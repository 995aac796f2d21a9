// SPDX-License-Identifier: Apache-2.0
// One or more instances of every type of the registry: made of its fields, or by an overload here
// where they must fit each other or deserve more.
#pragma once
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "laws/described_samples.h"
#include "posenc/registry.h"

namespace posenc::test {

template <class T>
using Type = std::type_identity<T>;

template <class T>
std::vector<T> samples(Type<T>) {
  return described_samples<T>();
}

// `change` applied to copies of `x`, one each.
template <class T, class... F>
std::vector<T> variants(const T& x, F&&... change) {
  std::vector<T> all{x};
  (([&] {
     T y = x;
     change(y);
     all.push_back(y);
   })(),
   ...);
  return all;
}

inline std::vector<Linear> samples(Type<Linear>) {
  return {{4}, {0.5}};
}
inline std::vector<RaisedBase> samples(Type<RaisedBase>) {
  return {{1e6}, {100}};
}
inline std::vector<Ntk> samples(Type<Ntk>) {
  Ntk n;
  n.factor = 4;
  n.formula = NtkFormula::alpha;
  return variants(
      n, [](Ntk& x) { x.formula = NtkFormula::fixed; },
      [](Ntk& x) { x.formula = NtkFormula::mixed, x.mixed_b = 0.625; },
      [](Ntk& x) { x.formula = NtkFormula::theta_scale, x.original_context = 2048; });
}
inline std::vector<NtkByParts> samples(Type<NtkByParts>) {
  NtkByParts n;
  n.factor = 4;
  n.original_context = 512;
  return variants(
      n, [](NtkByParts& x) { x.form = PartsForm::two_ramps; },
      [](NtkByParts& x) { x.ramp = Ramp::rotations; },
      [](NtkByParts& x) { x.extrapolation = 0.5; });
}
inline std::vector<Yarn> samples(Type<Yarn>) {
  Yarn y;
  y.factor = 4;
  y.original_context = 512;
  return variants(
      y, [](Yarn& x) { x.truncate = false; }, [](Yarn& x) { x.attention_factor = 1.4; },
      [](Yarn& x) { x.attn_factor = 0.9, x.extrapolation = 0.5; },
      [](Yarn& x) { x.mscale = 1, x.mscale_all_dim = 0.5, x.logit_from_mscale = true; },
      [](Yarn& x) { x.ramp = Ramp::rotations; },
      [](Yarn& x) { x.blend = YarnBlend::geometric, x.apply_scale = false; },
      [](Yarn& x) { x.beta_fast = 1, x.beta_slow = 32, x.reversed_range = ReversedRange::step; },
      [](Yarn& x) { x.beta_fast = 1, x.beta_slow = 32; },
      [](Yarn& x) { x.range_context = 2048, x.mscale_slope = 0.07; });
}
inline std::vector<Llama3> samples(Type<Llama3>) {
  return {{8, 1, 4, 1024}, {16, 1, 1, 1024}};
}
inline std::vector<LongRope> samples(Type<LongRope>) {
  LongRope l;
  l.short_factor = ramp(1, 2);
  l.long_factor = ramp(1, 30);
  l.original_context = 64;
  l.factor = 32;
  l.switch_rule = LongRopeSwitch::per_call;
  return variants(
      l, [](LongRope& x) { x.switch_rule = LongRopeSwitch::held, x.attention_factor = 1.19; },
      [](LongRope& x) { x.switch_rule = LongRopeSwitch::declared, x.declared_length = 4096; },
      [](LongRope& x) {
        x.switch_rule = LongRopeSwitch::always_long, x.short_mscale = 1.1, x.long_mscale = 1.2;
      },
      [](LongRope& x) {
        x.switch_rule = LongRopeSwitch::always_short, x.magnitude = LongRopeMagnitude::yarn;
      });
}
inline std::vector<Proportional> samples(Type<Proportional>) {
  return {{0.25, 1}, {0.5, 8}, {1, 1}, {0, 1}};
}
inline std::vector<Dynamic> samples(Type<Dynamic>) {
  return {{2, 64, LengthRule::per_call, 0},
          {4, 64, LengthRule::declared, 256},
          {2, 64, LengthRule::held, 0}};
}
inline std::vector<QwenDynamic> samples(Type<QwenDynamic>) {
  return {{64, LengthRule::per_call, 0}, {64, LengthRule::held, 0}};
}
inline std::vector<DynamicLinear> samples(Type<DynamicLinear>) {
  return {{64, LengthRule::per_call, 0}, {64, LengthRule::declared, 100}};
}
template <class T>
std::vector<T> growing() {
  T d;
  d.scaling.original_context = 64;
  d.length_rule = LengthRule::per_call;
  return variants(
      d, [](T& x) { x.max_context = 128, x.finetuned = true; },
      [](T& x) { x.length_rule = LengthRule::declared, x.declared_length = 1000; });
}
inline std::vector<DynamicYarn> samples(Type<DynamicYarn>) {
  return growing<DynamicYarn>();
}
inline std::vector<DynamicNtkByParts> samples(Type<DynamicNtkByParts>) {
  return growing<DynamicNtkByParts>();
}
inline std::vector<DynamicLongRope> samples(Type<DynamicLongRope>) {
  DynamicLongRope d;
  d.long_factor = ramp(1, 30);
  d.factor = 8;
  d.original_context = 64;
  d.length_rule = LengthRule::per_call;
  return variants(d, [](DynamicLongRope& x) { x.gain_of = LongRopeGainOf::current; });
}
inline std::vector<Fope> samples(Type<Fope>) {
  return {{64, {}}, {0, 3}};
}
inline std::vector<Frequencies> samples(Type<Frequencies>) {
  return {{ramp(1, -0.1), 1}, {ramp(1, 0), 1.2}};
}
inline std::vector<Divisors> samples(Type<Divisors>) {
  return {{ramp(1, 8), 1}, {{1, 1, 1, 1, 1, 1, 1e30, 1e30}, 1.19}};
}
inline std::vector<LearnedStretch> samples(Type<LearnedStretch>) {
  return {{ramp(-0.5, 0.5)}};
}
inline std::vector<MscaleLogit> samples(Type<MscaleLogit>) {
  return {{40, 1}};
}

inline std::vector<Rope> samples(Type<Rope>) {
  Rope r;
  r.head_dim = 24;
  r.rotary_dim = kWidth;
  r.pairing = Pairing::half_split;
  return variants(
      r, [](Rope& x) { x.pairing = Pairing::interleaved; },
      [](Rope& x) { x.rotary_dim = 0, x.offset = 8, x.pairing = Pairing::interleaved; },
      [](Rope& x) { x.direction = -1, x.offset = 3; },
      [](Rope& x) {
        x.pairing = Pairing::interleaved, x.output_order = OutputOrder::even_then_odd;
      });
}
inline std::vector<Mrope> samples(Type<Mrope>) {
  Mrope m;
  m.head_dim = 20;
  m.rotary_dim = kWidth;
  m.pairing = Pairing::half_split;
  m.sections = {2, 3, 3};
  m.layout = MropeLayout::chunked;
  return variants(
      m, [](Mrope& x) { x.layout = MropeLayout::interleaved, x.pairing = Pairing::interleaved; },
      [](Mrope& x) {
        x.layout = MropeLayout::ernie, x.sections = {3, 3, 2};
      },
      [](Mrope& x) { x.layout = MropeLayout::bailing, x.offset = 4; },
      [](Mrope& x) { x.layout = MropeLayout::openpangu; },
      [](Mrope& x) {
        x.layout = MropeLayout::ggml_mrope, x.sections = {1, 2, 2, 3};
      },
      [](Mrope& x) {
        x.layout = MropeLayout::ggml_imrope, x.sections = {3, 2, 2, 0};
      },
      [](Mrope& x) {
        x.sections = {2, 2, 2, 2}, x.direction = -1;
      });
}
inline std::vector<Axial> samples(Type<Axial>) {
  Axial a;
  a.head_dim = 34;
  a.axes_dim = {16, 16};
  a.offset = 2;
  a.pairing = Pairing::half_split;
  return variants(
      a, [](Axial& x) { x.order = AxialOrder::alternate, x.pairing = Pairing::interleaved; },
      [](Axial& x) {
        x.order = AxialOrder::blocks, x.stream = {1, 0};
      },
      [](Axial& x) { x.scale = 6.25, x.base = 100, x.streams = 4, x.direction = -1; },
      [](Axial& x) {
        x.spacing = AxialSpacing::interlaced, x.axes_dim = {8, 8};
      },
      [](Axial& x) {
        x.axes_dim = {4, 6, 6}, x.pairing = Pairing::interleaved;
      },
      [](Axial& x) { x.spacing = AxialSpacing::inclusive, x.axes_dim = {16}; },
      [](Axial& x) { x.spacing = AxialSpacing::linear, x.last = 5; },
      [](Axial& x) { x.spacing = AxialSpacing::logarithmic, x.last = 112; },
      [](Axial& x) { x.spacing = AxialSpacing::periods, x.first = 0.3, x.last = 30; },
      [](Axial& x) { x.spacing = AxialSpacing::constant; });
}
inline std::vector<MixedAxes> samples(Type<MixedAxes>) {
  MixedAxes m;
  m.head_dim = 16;
  m.axes = 2;
  m.frequencies = ramp(0.5, -0.2);
  m.pairing = Pairing::interleaved;
  m.offset = 4;
  return variants(m, [](MixedAxes& x) {
    x.heads = 2, x.pairing = Pairing::half_split;
    x.frequencies = ramp(0.5, -0.2);
  });
}
inline std::vector<Xpos> samples(Type<Xpos>) {
  Xpos x;
  x.head_dim = 20;
  x.rotary_dim = kWidth;
  x.pairing = Pairing::half_split;
  x.center = 0;
  return variants(
      x, [](Xpos& y) { y.center = 16, y.scale_base = 64, y.pairing = Pairing::interleaved; },
      [](Xpos& y) { y.power_divisor = 4, y.direction = -1; });
}

// Every sample of every type of a list.
template <class List, class F>
void for_samples(List list, F&& f) {
  for_each(list, [&]<class T>() {
    for (const T& x : samples(Type<T>{})) f(x);
  });
}

// All samples of the scalings, as one type: little code at every use.
inline std::vector<Scaling> scaling_samples() {
  std::vector<Scaling> all;
  for_samples(Scalings{}, [&](const auto& x) { all.push_back(Scaling{x}); });
  return all;
}

}  // namespace posenc::test
