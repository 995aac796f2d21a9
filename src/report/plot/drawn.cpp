// SPDX-License-Identifier: Apache-2.0
// What is drawn of a model or SCHEME that rotates: which layers, and the names of its axes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "posenc/core/describe.h"
#include "rotary.h"

namespace posenc::report {

std::vector<double> flat(const RotarySpec& spec) {
  std::vector<double> f;
  for (const RotaryBlock& b : spec.blocks)
    for (Index i = 0; i < b.pairs(); ++i) {
      double sum = 0;
      for (Index a = 0; a < b.spectrum.axes; ++a)
        sum += std::abs(b.spectrum.frequency[static_cast<std::size_t>(a * b.pairs() + i)]);
      f.push_back(sum);
    }
  return f;
}

namespace {

// "0-4, 6-10 ...": at most three runs.
std::string runs(const std::vector<Index>& layers) {
  std::string text;
  int shown = 0;
  for (std::size_t i = 0; i < layers.size(); ++shown) {
    if (shown == 3) return text + " ...";
    std::size_t end = i + 1;
    while (end < layers.size() && layers[end] == layers[end - 1] + 1) ++end;
    text += text.empty() ? "" : ", ";
    text +=
        end - i == 1 ? std::to_string(layers[i]) : fmt::format("{}-{}", layers[i], layers[end - 1]);
    i = end;
  }
  return text;
}

constexpr std::size_t kMostGroups = 7;  // colours

// Layers that rotate alike, in the order of their first; none where all do.
std::vector<DrawnLayers> different_layers(const ModelSpec& m, const SubjectOptions& o) {
  std::vector<DrawnLayers> groups;
  std::vector<std::vector<Index>> members;
  std::vector<std::string> kinds;
  for (const LayerSpec& l : layers_of(m, o)) {
    if (!l.rotary || l.rotary->blocks.empty()) continue;
    std::size_t g = 0;
    while (g < groups.size() && groups[g].spec != *l.rotary) ++g;
    if (g == groups.size()) {
      if (g == kMostGroups) continue;
      groups.push_back({"", *l.rotary});
      members.emplace_back();
      kinds.emplace_back(enum_text(l.attention.kind));
    }
    members[g].push_back(l.index);
  }
  if (groups.size() < 2) return {};
  for (std::size_t g = 0; g < groups.size(); ++g)
    groups[g].name = fmt::format("{}: layer{} {}", kinds[g], members[g].size() == 1 ? "" : "s",
                                 runs(members[g]));
  return groups;
}

// The streams of M-RoPE have names (positions/mrope.h); so have the two axes of an image.
std::vector<std::string> axis_names(const Encoding* e, Index axes, bool vision) {
  if (e && std::holds_alternative<Mrope>(e->scheme) &&
      std::get<Mrope>(e->scheme).sections.size() == 3)
    return {"time", "height", "width"};
  if (vision && axes == 2) return {"rows", "columns"};
  return {};
}

}  // namespace

std::string Drawn::axis_name(Index axis) const {
  const auto i = static_cast<std::size_t>(axis);
  return i < axes.size() ? axes[i] : fmt::format("axis {}", axis);
}

Drawn drawn_of(const Subject& s, const PlotOptions& o) {
  Drawn d;
  SubjectOptions own = o.subject;
  const bool together = o.kind == "wavelengths" || o.kind == "decay";
  if (s.model && !own.layer && together) {
    require_readable(*s.model);
    d.layers = different_layers(*s.model, own);
    if (!d.layers.empty()) own.layer = chosen_layer(*s.model, own).index;
  }
  d.spec = turned_by(s, own);
  if (d.spec.blocks.empty())
    throw InputError("this layer rotates nothing: there is nothing to draw");
  const Encoding* encoding = s.encoding ? &*s.encoding : nullptr;
  if (s.model) {
    const LayerSpec& layer = chosen_layer(*s.model, own);
    for (const auto& e : layer.encodings)
      if (is_rotary(e.value.scheme)) encoding = &e.value;
    // The decoder's own: a tower counts patches or frames.
    if (s.model->context.value > 0 && own.tower.empty()) d.context = s.model->context.value;
    d.title = s.title + (own.tower.empty() ? "" : " " + own.tower);
    if (d.layers.empty()) d.title += fmt::format(" layer {}", layer.index);
  } else {
    d.title = s.title;
  }
  d.context_given = own.context.has_value();
  if (d.context_given) d.context = own.context;
  d.axes = axis_names(encoding, d.spec.axes(), own.tower == "vision");
  d.unscaled = encoding ? turned_by(Encoding{encoding->scheme, {}}, {}) : d.spec;
  d.scaled = encoding && !encoding->scalings.empty();
  return d;
}

}  // namespace posenc::report
