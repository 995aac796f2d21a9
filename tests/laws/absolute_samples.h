// SPDX-License-Identifier: Apache-2.0
// One or more instances of every absolute scheme of the registry (without an overload here: made of
// its fields), and positions that fit them.
#pragma once
#include <cmath>

#include "laws/samples.h"
#include "posenc/positions.h"

namespace posenc::test {

// Two rows of three tokens; integers, some repeated. Schemes that take real positions (or several
// axes) say so with an overload of their own.
template <class S>
OwnedPositions positions_for(const S&) {
  return explicit_positions(std::vector<Index>{0, 3, 1, 2, 2, 0}, 2);
}
inline OwnedPositions real_positions(std::int32_t axes) {
  std::vector<double> v;
  for (std::int32_t i = 0; i < 6 * axes; ++i) v.push_back(3 * std::sin(1.7 * i + 0.4));
  return explicit_positions(v, 2, axes);
}

inline std::vector<Sinusoidal> samples(Type<Sinusoidal>) {
  Sinusoidal s;
  s.width = 6;
  return variants(
      s, [](Sinusoidal& x) { x.gain = 1.5, x.learned_gain = true, x.input_gain = 2.45; },
      [](Sinusoidal& x) { x.layout = SineLayout::halves, x.spacing = SineSpacing::t2t; },
      [](Sinusoidal& x) { x.width = 7, x.odd = OddWidth::truncate, x.exponent_width = 8; },
      [](Sinusoidal& x) {
        x.width = 7, x.odd = OddWidth::zero_pad, x.layout = SineLayout::halves_cos_first;
      },
      [](Sinusoidal& x) {
        x.width = 7, x.odd = OddWidth::marian, x.layout = SineLayout::halves;
        x.spacing = SineSpacing::t2t, x.learned_gain = true;
      },
      [](Sinusoidal& x) { x.spacing = SineSpacing::shifted, x.shift = 0.5, x.scale = 2.5; },
      [](Sinusoidal& x) { x.compose = Compose::one_plus, x.offset = 2; },
      [](Sinusoidal& x) { x.compose = Compose::multiply, x.learned_gain = true; },
      [](Sinusoidal& x) { x.compose = Compose::concat, x.learned_gain = true; });
}
inline OwnedPositions positions_for(const Sinusoidal&) {
  return real_positions(1);
}

inline std::vector<SinusoidalNd> samples(Type<SinusoidalNd>) {
  SinusoidalNd s;
  s.widths = {4, 6};
  return variants(
      s,
      [](SinusoidalNd& x) {
        x.stream = {1, 0}, x.scale = {0.5, 6.28}, x.layout = SineLayout::halves, x.gain = 0.7;
      },
      [](SinusoidalNd& x) {
        x.stream = {1, 0}, x.scale = {0.5, 6.28}, x.layout = SineLayout::halves;
        x.arrangement = AxisArrangement::joint;
      },
      [](SinusoidalNd& x) {
        x.widths = {4, 3}, x.exponent_width = 4, x.odd = OddWidth::truncate;
      },
      [](SinusoidalNd& x) { x.spacing = SineSpacing::t2t, x.input_gain = 3, x.first = 1; },
      [](SinusoidalNd& x) {
        x.compose = Compose::concat, x.widths = {0, 4};
      },
      [](SinusoidalNd& x) {
        x.layouts = {SineLayout::halves, SineLayout::interleaved}, x.bases = {100, 1e4};
        x.spacings = {SineSpacing::t2t, SineSpacing::paper}, x.starts = {4, 1};
      },
      [](SinusoidalNd& x) { x.compose = Compose::multiply; });
}
inline OwnedPositions positions_for(const SinusoidalNd&) {
  return real_positions(2);
}

inline std::vector<FourierFeatures> samples(Type<FourierFeatures>) {
  FourierFeatures f;
  f.axes = 2;
  f.bands = 3;
  f.last = {4};
  return variants(
      f,
      [](FourierFeatures& x) {
        x.coordinates = true, x.last = {4, 3}, x.factor = 3.14;
      },
      [](FourierFeatures& x) {
        x.law = FourierBands::log, x.order = FourierOrder::by_band, x.layout = SineLayout::sines;
      },
      [](FourierFeatures& x) {
        x.law = FourierBands::log, x.order = FourierOrder::band_blocks, x.coordinates = true;
        x.compose = Compose::concat;
      },
      [](FourierFeatures& x) {
        x.law = FourierBands::powers, x.last = {}, x.layout = SineLayout::cosines;
      },
      [](FourierFeatures& x) {
        x.law = FourierBands::random, x.last = {}, x.factor = 6.28, x.gain = 0.8;
        x.coordinates = true;
      });
}
inline OwnedPositions positions_for(const FourierFeatures& f) {
  return real_positions(static_cast<std::int32_t>(f.axes));
}

inline std::vector<LearnableFourier> samples(Type<LearnableFourier>) {
  LearnableFourier f;
  f.width = 4;
  f.features = 6;
  f.hidden = 3;
  return variants(
      f, [](LearnableFourier& x) { x.groups = 2, x.axes = 1, x.gain = 0.5; },
      [](LearnableFourier& x) { x.axes = 1, x.compose = Compose::one_plus; });
}
inline OwnedPositions positions_for(const LearnableFourier& f) {
  return real_positions(static_cast<std::int32_t>(f.axes * f.groups));
}

inline std::vector<ContinuousAxial> samples(Type<ContinuousAxial>) {
  ContinuousAxial c;
  c.width = 3;
  c.hidden = 4;
  return variants(
      c, [](ContinuousAxial& x) { x.axes = 1, x.depth = 1, x.activation = Activation::gelu; },
      [](ContinuousAxial& x) { x.gain = 0.3, x.activation = Activation::identity, x.depth = 3; });
}
inline OwnedPositions positions_for(const ContinuousAxial& c) {
  return real_positions(static_cast<std::int32_t>(c.axes));
}

inline std::vector<Coordinates> samples(Type<Coordinates>) {
  return variants(
      Coordinates{}, [](Coordinates& x) { x.axes = 3, x.gain = 0.5; },
      [](Coordinates& x) { x.compose = Compose::multiply, x.axes = 1; },
      [](Coordinates& x) { x.radius = CoordinateRadius::middle, x.axes = 3; },
      [](Coordinates& x) { x.radius = CoordinateRadius::code, x.gain = -2; },
      [](Coordinates& x) { x.radius = CoordinateRadius::code, x.compose = Compose::add; });
}
inline OwnedPositions positions_for(const Coordinates& c) {
  return real_positions(static_cast<std::int32_t>(c.axes));
}

inline std::vector<Cape2d> samples(Type<Cape2d>) {
  Cape2d c;
  c.width = 6;
  return variants(c, [](Cape2d& x) { x.radius = CapeRadius::from_one, x.input_gain = 2.45; });
}
inline OwnedPositions positions_for(const Cape2d&) {
  // Frequencies reach 10 pi: small coordinates keep differences exact enough.
  return explicit_positions(
      std::vector<double>{-1, -0.5, 0.25, 0.1, 0.7, 1, 0.3, -0.2, 0.9, -0.6, 0, 0.4}, 2, 2);
}

inline std::vector<CrossModal> samples(Type<CrossModal>) {
  CrossModal c;
  c.width = 6;
  c.modalities = 3;
  c.widths = {4, 2};
  return variants(c, [](CrossModal& x) {
    x.widths = {0, 0}, x.scale = {2, 0.5}, x.gain = 0.4, x.layout = SineLayout::halves;
  });
}
// Axis 0 is the modality: whole numbers, which finite differences must not move.
inline OwnedPositions positions_for(const CrossModal&) {
  return explicit_positions(
      std::vector<Index>{0, 2, 1, 1, 0, 0, 3, -1, 7, 2, 2, 9, 5, 0, -4, 1, kAbsent, 6}, 2, 3);
}

inline std::vector<Learned> samples(Type<Learned>) {
  Learned s;
  s.width = 3;
  s.rows = 4;
  return variants(
      s, [](Learned& x) { x.gain = 0.5, x.input_gain = 2, x.zero_position = 2; },
      [](Learned& x) { x.rows = 2, x.beyond = Beyond::clamp; },
      [](Learned& x) { x.rows = 2, x.beyond = Beyond::zero; },
      [](Learned& x) { x.compose = Compose::one_plus; },
      [](Learned& x) { x.compose = Compose::concat, x.offset = -1, x.beyond = Beyond::zero; },
      [](Learned& x) { x.rows = 2, x.beyond = Beyond::extend, x.compose = Compose::one_plus; },
      [](Learned& x) { x.l2norm = true, x.initializer = TableInitial::glorot_uniform; });
}

// Two rows of three tokens on several axes, below `limit`, no axis like another.
inline OwnedPositions whole_positions(std::int32_t axes, Index limit) {
  std::vector<Index> v;
  for (Index i = 0; i < 6 * axes; ++i) v.push_back((i * 7 / 2 + i / 6) % limit);
  return explicit_positions(v, 2, axes);
}

inline std::vector<LearnedAxes> samples(Type<LearnedAxes>) {
  LearnedAxes s;
  s.width = 5;
  s.shape = {4, 4};
  return variants(
      s,
      [](LearnedAxes& x) {
        x.gain = 0.5, x.input_gain = 2, x.shape = {2, 3}, x.flat = true;
      },
      [](LearnedAxes& x) {
        x.widths = {2, 3}, x.order = {1, 0}, x.compose = Compose::one_plus;
      },
      [](LearnedAxes& x) {
        x.widths = {2, 3}, x.compose = Compose::concat;
      },
      [](LearnedAxes& x) {
        x.shape = {2, 3}, x.beyond = Beyond::zero;
      },
      [](LearnedAxes& x) {
        x.shape = {2, 1, 2}, x.widths = {1, 1, 3}, x.flat = true;
      });
}
inline OwnedPositions positions_for(const LearnedAxes& s) {
  return whole_positions(s.flat ? 1 : static_cast<std::int32_t>(s.shape.size()), 4);
}

inline std::vector<Boxes> samples(Type<Boxes>) {
  Boxes s;
  s.width = 6;
  s.rows = 9;
  return variants(
      s, [](Boxes& x) { x.coordinate = x.shape = 1; }, [](Boxes& x) { x.rows = 8, x.clip = true; });
}
// Corners x0, y0, x1, y1 of six boxes.
inline OwnedPositions positions_for(const Boxes&) {
  return explicit_positions(
      std::vector<Index>{0, 1, 2, 3, 4, 5, 2, 2, 0, 1, 7, 0, 5, 1, 2, 4, 7, 6, 3, 7, 1, 1, 7, 4}, 2,
      4);
}

inline std::vector<Hierarchy> samples(Type<Hierarchy>) {
  Hierarchy s;
  s.width = 6;
  s.rows = {4, 4, 4};
  return variants(
      s,
      [](Hierarchy& x) {
        x.rows = {0, 2, 4}, x.beyond = Beyond::clamp, x.input_gain = 2;
      },
      [](Hierarchy& x) {
        x.rows = {0, 4, 0}, x.widths = {2, 2, 2}, x.layout = SineLayout::halves;
      });
}
inline OwnedPositions positions_for(const Hierarchy&) {
  return whole_positions(3, 4);
}

inline std::vector<ParagraphOffset> samples(Type<ParagraphOffset>) {
  ParagraphOffset s;
  s.width = 6;
  s.paragraphs = 4;
  return variants(
      s, [](ParagraphOffset& x) { x.mode = ParagraphMode::shift, x.paragraphs = 0, x.omega = 2.5; },
      [](ParagraphOffset& x) {
        x.mode = ParagraphMode::shift, x.paragraphs = 0, x.learned_omega = true, x.input_gain = 2;
      });
}
inline OwnedPositions positions_for(const ParagraphOffset&) {
  return whole_positions(2, 4);
}

// Every sample of every absolute scheme. (Stands last: it finds the overloads above.)
template <class F>
void for_absolute_samples(F&& f) {
  for_each(AbsoluteSchemes{}, [&]<class T>() {
    for (const T& x : samples(Type<T>{})) f(x);
  });
}

}  // namespace posenc::test
