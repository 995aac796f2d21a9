// SPDX-License-Identifier: Apache-2.0
#include "posenc/rotary/axial.h"

#include <cmath>
#include <numbers>
#include <string>
#include <utility>
#include <vector>

#include "posenc/core/error.h"

namespace posenc::inline v0 {

Spectrum Axial::spectrum() const {
  check();
  if (spacing == AxialSpacing::geometric && same_dim()) {
    Spectrum s = geometric_spectrum(base, axes_dim.front());
    if (scale != 1) {
      s.geometric.reset();
      if (s.ggml) s.ggml->freq_scale *= scale;
      for (double& f : s.frequency) f *= scale;
    }
    return s;
  }
  Spectrum s;
  if (shared()) {
    for (Index j = 0; j < axes_dim.front() / 2; ++j) s.frequency.push_back(frequency(0, j));
  } else {
    for (std::size_t a = 0; a < axes_dim.size(); ++a)
      for (Index j = 0; j < axes_dim[a] / 2; ++j) s.frequency.push_back(frequency(a, j));
  }
  return s;
}

bool Axial::same_dim() const {
  for (const Index d : axes_dim)
    if (d != axes_dim.front()) return false;
  return true;
}

Index Axial::total() const {
  Index sum = 0;
  for (const Index d : axes_dim) sum += d;
  return sum;
}

Index Axial::stream_of(std::size_t a) const {
  return stream.empty() ? static_cast<Index>(a) : stream[a];
}

Index Axial::stream_count() const {
  Index used = 0;
  for (std::size_t a = 0; a < axes_dim.size(); ++a)
    used = stream_of(a) + 1 > used ? stream_of(a) + 1 : used;
  if (streams != 0 && streams < used)
    refuse_field("axial", "streams", "must be at least the streams in use", streams);
  return streams == 0 ? used : streams;
}

void Axial::check() const {
  if (axes_dim.empty()) refuse_field("axial", "axes_dim", "must name at least one axis");
  if (axes_dim.size() > 256) refuse_field("axial", "axes_dim", "has at most 256 axes");
  for (const Index d : axes_dim)
    if (d <= 0 || d % 2 != 0 || d > 65536)
      refuse_field("axial", "axes_dim", "must be positive, even and at most 65536", d);
  if (!(base > 0) || !std::isfinite(base))
    refuse_field("axial", "base", "must be finite and positive", base);
  if (!(scale > 0) || !std::isfinite(scale))
    refuse_field("axial", "scale", "must be finite and positive", scale);
  if (!(first > 0) || !std::isfinite(first))
    refuse_field("axial", "first", "must be finite and positive", first);
  const bool ends = spacing == AxialSpacing::linear || spacing == AxialSpacing::logarithmic ||
                    spacing == AxialSpacing::periods;
  if (ends ? !(last > 0) || !std::isfinite(last) : last != 0)
    refuse_field(
        "axial", "last",
        ends ? "must be finite and positive" : "belongs to spacing linear, logarithmic and periods",
        last);
  if (!ends && first != 1)
    refuse_field("axial", "first", "belongs to spacing linear, logarithmic and periods", first);
  if (!stream.empty() && stream.size() != axes_dim.size())
    refuse_field("axial", "stream", "must name one stream an axis",
                 static_cast<Index>(stream.size()));
  for (const Index a : stream)
    if (a < 0 || a > 255) refuse_field("axial", "stream", "must be from 0 to 255", a);
  if (spacing == AxialSpacing::interlaced && !same_dim())
    refuse_field("axial", "interlaced", "needs axes of equal axes_dim");
  if (order == AxialOrder::alternate && !same_dim())
    refuse_field("axial", "order=alternate", "needs axes of equal axes_dim");
}

double Axial::frequency(std::size_t a, Index j) const {
  const double d = static_cast<double>(axes_dim[a]), n = d / 2, i = static_cast<double>(j);
  const double fraction = n > 1 ? i / (n - 1) : 0;  // 0 .. 1
  switch (spacing) {
    case AxialSpacing::geometric:
      return scale * std::pow(base, -2 * i / d);
    case AxialSpacing::interlaced:
      return scale *
             std::pow(base,
                      -2 * (i * static_cast<double>(axes_dim.size()) + static_cast<double>(a)) /
                          static_cast<double>(total()));
    case AxialSpacing::inclusive:
      return scale * std::pow(base, -fraction);
    case AxialSpacing::linear:
      return scale * std::numbers::pi * (first + fraction * (last - first));
    case AxialSpacing::logarithmic:
      return scale * std::numbers::pi * first * std::pow(last / first, fraction);
    case AxialSpacing::periods:
      return scale * 2 * std::numbers::pi / (first * std::pow(last / first, fraction));
    case AxialSpacing::constant:
      break;
  }
  return scale;
}

RotarySpec Axial::place(const Spectrum& scaled) const {
  check();
  const Index axes = stream_count(), count = static_cast<Index>(axes_dim.size());
  const Index want = shared() ? axes_dim.front() / 2 : total() / 2;
  if (scaled.heads != 1 || scaled.axes != 1 || scaled.pairs() != want)
    refuse("axial",
           "the spectrum must have one head, one axis and " + std::to_string(want) + " pairs",
           scaled.pairs());
  RotarySpec spec;
  spec.head_dim = head_dim;
  RotaryBlock block;
  block.offset = offset;
  block.pairing = pairing;
  block.direction = block_direction(direction);
  const auto open = [&](Index pairs) {
    block.spectrum = scaled;
    block.spectrum.geometric.reset();
    if (order != AxialOrder::sections || !shared())
      block.spectrum.drop_ggml("axial axes that are not sections of one set of frequencies");
    block.spectrum.axes = axes;
    block.spectrum.frequency.assign(static_cast<std::size_t>(axes * pairs), 0.0);
  };
  const auto put = [&](std::size_t a, Index source, Index at, Index pairs) {
    block.spectrum.frequency[static_cast<std::size_t>(stream_of(a) * pairs + at)] =
        scaled.frequency[static_cast<std::size_t>(source)];
  };
  Index source = 0, at = 0;
  if (order != AxialOrder::blocks) open(total() / 2);
  for (std::size_t a = 0; a < axes_dim.size(); ++a) {
    const Index n = axes_dim[a] / 2;
    if (shared()) source = 0;
    if (order == AxialOrder::blocks) open(n), at = 0;
    for (Index j = 0; j < n; ++j, ++source, ++at)
      if (order == AxialOrder::alternate)
        put(a, source, j * count + static_cast<Index>(a), total() / 2);
      else
        put(a, source, at, order == AxialOrder::blocks ? n : total() / 2);
    if (order == AxialOrder::blocks) {
      spec.blocks.push_back(block);
      block.offset += axes_dim[a];
    }
  }
  if (order == AxialOrder::blocks) return spec;
  if (GgmlForm* g = block.spectrum.ggml ? &*block.spectrum.ggml : nullptr; g && count > 1) {
    // The iterated angle starts anew at each section (ggml's VISION); its divisors repeat.
    const std::vector<double> once = g->factors;
    for (Index a = 1; a < count; ++a) {
      g->restart.push_back(a * axes_dim.front() / 2);
      g->factors.insert(g->factors.end(), once.begin(), once.end());
    }
  }
  spec.blocks.push_back(block);
  return spec;
}

namespace axial_presets {

Axial two_axes(Index head_dim, Pairing pairing, double base) {
  Axial a;
  a.head_dim = head_dim;
  a.axes_dim = {head_dim / 2, head_dim - head_dim / 2};
  a.pairing = pairing;
  a.base = base;
  return a;
}

Axial qwen2_vl_vision(Index head_dim) {
  return two_axes(head_dim, Pairing::half_split);
}

Axial pixtral_vision(Index head_dim, Pairing pairing) {
  Axial a = two_axes(head_dim, pairing);
  a.spacing = AxialSpacing::interlaced;
  return a;
}

Axial llama4_vision(Index head_dim) {
  return two_axes(head_dim, Pairing::interleaved);
}

Axial rope_vit(Index head_dim) {
  return two_axes(head_dim, Pairing::interleaved, 100);
}

Axial gemma4_vision(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::half_split, 100);
  a.order = AxialOrder::blocks;
  return a;
}

Axial chatglm_2d(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::half_split);
  a.order = AxialOrder::blocks;
  return a;
}

Axial dinov3(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::half_split, 100);
  a.scale = 2 * std::numbers::pi;
  return a;
}

Axial kimi_vision(Index head_dim) {
  Axial a = two_axes(head_dim, Pairing::interleaved);
  a.order = AxialOrder::alternate;
  return a;
}

Axial flux(std::vector<Index> axes_dim, double base) {
  Axial a;
  for (const Index d : axes_dim) a.head_dim += d;
  a.axes_dim = std::move(axes_dim);
  a.pairing = Pairing::interleaved;
  a.base = base;
  return a;
}

Axial retnet(Index head_dim, Pairing pairing) {
  Axial a;
  a.head_dim = head_dim;
  a.axes_dim = {head_dim};
  a.pairing = pairing;
  a.spacing = AxialSpacing::inclusive;
  return a;
}

}  // namespace axial_presets

}  // namespace posenc::v0
