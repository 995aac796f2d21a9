// SPDX-License-Identifier: Apache-2.0
// The numbers behind the pictures of docs/absolute/ and docs/rotary/, from the library itself:
// blocks of
//   # name rows columns
// and comma-separated rows. draw.py compiles this, runs it and draws.
#include "numbers.h"

#include <cmath>

#include "posenc/absolute/cape2d.h"
#include "posenc/absolute/complex_order.h"
#include "posenc/absolute/convolutional.h"
#include "posenc/absolute/coordinates.h"
#include "posenc/absolute/crossmodal.h"
#include "posenc/absolute/distance_offset.h"
#include "posenc/absolute/extend.h"
#include "posenc/absolute/fourier_features.h"
#include "posenc/absolute/hierarchy.h"
#include "posenc/absolute/learnable_fourier.h"
#include "posenc/absolute/learned_axes.h"
#include "posenc/absolute/paragraph_offset.h"
#include "posenc/absolute/sinusoidal_nd_presets.h"
#include "posenc/positions.h"
#include "posenc/registry.h"
#include "posenc/relative/local_window.h"
#include "posenc/rotary/axial.h"
#include "posenc/rotary/mixed_axes.h"
#include "posenc/rotary/mrope.h"

using namespace posenc;
using namespace posenc_pictures;

namespace {

void compose() {
  const Index tokens = 32, width = 32;
  for (const Compose how : {Compose::add, Compose::multiply, Compose::one_plus}) {
    Sinusoidal s{.width = width, .compose = how};
    LoweredInput lowered;
    s.lower({}, lowered);
    Values x(at(tokens * width), 1.0);
    apply_input(tensor(x.data(), {tokens, width}), arange(0, tokens), lowered,
                tensor(x.data(), {tokens, width}));
    print(std::string("compose_") + std::string(enum_text(how)), x, width);
  }
}

void grids() {
  const Index n = 15, middle = n * n / 2, width = 64;
  const SinusoidalNd mae = sinusoidal_nd_presets::mae(width);
  const Values y = rows(mae, grid({n, n}), width);
  print("nd_sin_x", channel(y, width, 3), n);
  print("nd_sin_y", channel(y, width, 35), n);
  print("nd_10000", likeness(y, width, middle), n);
  SinusoidalNd fast = mae;
  fast.base = 100;
  print("nd_100", likeness(rows(fast, grid({n, n}), width), width, middle), n);

  for (const double gamma : {2.0, 0.5, 0.2}) {
    LearnableFourier f;
    f.width = width, f.features = 256, f.hidden = 64, f.gamma = gamma;
    char name[32];
    std::snprintf(name, sizeof name, "learnable_%g", gamma);
    const Index grid_size[] = {n, n};
    print(name, distance_to(rows(f, linspace_grid(grid_size), width), width, middle), n);
  }
  for (const bool beside : {false, true}) {
    LearnedAxes a;
    a.width = width, a.shape = {n, n};
    if (beside) a.widths = {width / 2, width / 2};
    print(beside ? "axes_beside" : "axes_summed",
          likeness(rows(a, grid({n, n}), width), width, middle), n);
  }
  const Index oblong[] = {8, 12};
  const Values c = rows(Coordinates{}, linspace_grid(oblong), 2);
  print("coordinates_row", channel(c, 2, 0), 12);
  print("coordinates_column", channel(c, 2, 1), 12);
}

void fourier() {
  const Index line[] = {64};
  const FourierFeatures linear = fourier_presets::perceiver(16, {64}, false);
  const FourierFeatures doubling = fourier_presets::nerf(1, 6);
  FourierFeatures powers = fourier_presets::timm_index(16);
  powers.axes = 1;
  print("fourier_linear", rows(linear, linspace_grid(line), 32), 32);
  print("fourier_log", rows(doubling, linspace_grid(line), 12), 12);
  print("fourier_powers", rows(powers, arange(0, 64), 32), 32);
}

void drawn() {
  const Cape recipe{.max_global_shift = 5, .max_local_shift = 0.5, .max_global_scaling = 1.03};
  const Index sequences = 5, tokens = 128;
  const CapeDraws draws = draw_cape(recipe, sequences, tokens, 1, {.seed = 4});
  const OwnedPositions p = cape_positions(recipe, sequences, tokens, {}, {}, draws);
  Values moved;
  for (Index b = 0; b < sequences; ++b)
    for (Index t = 0; t < tokens; ++t)
      moved.push_back(position_at(p, 0, b, t) - static_cast<double>(t));
  print("cape", moved, tokens);
  const Cape2d flat{.width = 32};
  const Index n = 25;
  const Values y = rows(flat, cape_grid_positions(n, n, 1, {}), 32);
  for (const Index wave : {0, 4, 9, 14})
    print("cape2d_" + std::to_string(wave), channel(y, 32, wave), n);

  const ShapeShift shape{.max_shift = 100};
  Values shaped, random;
  for (const Index k : shape_offsets(shape, 5, 16, {.seed = 4}))
    for (Index t = 0; t < 16; ++t) shaped.push_back(static_cast<double>(k + t));
  for (std::uint64_t b = 0; b < 5; ++b) {
    const OwnedPositions q = random_positions(116, 16, {.seed = 4, .first_sequence = b});
    for (Index t = 0; t < 16; ++t) random.push_back(position_at(q, 0, 0, t));
  }
  print("shape", shaped, 16);
  print("randomised", random, 16);
}

void resized() {
  const auto weights = [](const char* name, Index from, Index to, const Extension& how) {
    const AxisTaps taps = axis_taps(from, to, how);
    Values v(at(from * to), 0.0);
    for (Index o = 0; o < to; ++o)
      for (Index k = 0; k < taps.taps; ++k)
        v[at(o * from + taps.index[at(o * taps.taps + k)])] += taps.weight[at(o * taps.taps + k)];
    print(name, v, from);
  };
  Extension cubic{ExtendHow::bicubic}, wide{ExtendHow::bicubic};
  wide.antialias = true;
  weights("extend_linear", 8, 20, {ExtendHow::linear});
  weights("extend_bicubic", 8, 20, cubic);
  weights("extend_antialias", 8, 20, wide);
  weights("extend_down", 20, 8, cubic);
  weights("extend_down_antialias", 20, 8, wide);
  weights("extend_geometric", 7, 15, {ExtendHow::geometric});
  weights("extend_hierarchical", 5, 20, {ExtendHow::hierarchical});
}

void text() {
  // Four paragraphs of three sentences of four tokens.
  std::vector<Index> ids;
  for (const Index per : {1, 4, 12})
    for (Index t = 0; t < 48; ++t) ids.push_back(per == 1 ? t % 4 : per == 4 ? t / 4 % 3 : t / 12);
  Hierarchy h;
  h.width = 48, h.rows = {0, 0, 0}, h.widths = {16, 16, 16};
  print("hierarchy", rows(h, explicit_positions(ids, 1, 3), 48), 48);

  std::vector<Index> both;
  for (const Index per : {1, 12})
    for (Index t = 0; t < 48; ++t) both.push_back(t / per);
  for (const double omega : {0.0, 200.0}) {
    ParagraphOffset s;
    s.width = 64, s.mode = ParagraphMode::shift, s.omega = omega;
    print(omega == 0 ? "paragraph_none" : "paragraph_shift",
          all_likenesses(rows(s, explicit_positions(both, 1, 2), 64), 64), 48);
  }
}

void window() {
  const Index tokens = 24, w = 3;
  const LocalWindow s{.window = w};
  const ScoreShape shape{
      .heads = 1, .head_dim = 8, .distance = {{1 - tokens, tokens - 1}, {-2, 2}}};
  Values near, far{-0.6};
  for (Index d = -w; d <= w; ++d) near.push_back(1 - 0.25 * std::abs(static_cast<double>(d)));
  const ConstTensorView p[] = {tensor(near.data(), {1, 2 * w + 1}), tensor(far.data(), {1})};
  LoweredTerms lowered;
  s.lower(shape, p, lowered);
  Values bias;
  for (Index i = 0; i < tokens; ++i)
    for (Index j = 0; j < tokens; ++j) {
      double sum = 0;
      for (const Term& term : lowered.terms) {
        const auto& t = std::get<ProductTerm>(term);
        Index row = 0;
        for (const IndexLine& line : t.lines) {
          if (line.row == nullptr || row < 0) continue;
          const Index delta = line.axis == 0 ? i - j : i / 8 - j / 8;
          const Index r = row_of(line, static_cast<double>(delta));
          row = r < 0 ? -1 : row + r;
        }
        if (row >= 0) sum += static_cast<const double*>(t.table.data)[row];
      }
      bias.push_back(sum);
    }
  print("local_window", bias, tokens);
}

void distances() {
  const Index tokens = 24, w = 5, n = 2 * w + 1;
  Values unit(at(n * n), 0.0), y(at(tokens * n));
  for (Index r = 0; r < n; ++r) unit[at(r * n + r)] = 1;
  const Index ends[] = {0, tokens};
  for (const bool causal : {false, true}) {
    add_distance_offset({.window = w, .causal = causal}, tensor(unit.data(), {n, n}), {}, ends,
                        tensor(y.data(), {tokens, n}));
    print(causal ? "distance_causal" : "distance_all", y, n);
  }
}

// Words of one amplitude at p and p + 2: what the two products give.
void complex_words() {
  const ComplexOrder s{.width = 8, .vocabulary = 1, .frequency = WordSharing::per_channel};
  const Index count = 101;
  Values amplitude(8, 1.0), frequency(8), re(at(count + 2) * 8), im(re.size());
  for (std::size_t c = 0; c < 8; ++c) frequency[c] = std::pow(10000, -static_cast<double>(c) / 8);
  const ConstTensorView p[] = {tensor(amplitude.data(), {1, 8}), tensor(frequency.data(), {8})};
  const std::vector<Index> ids(at(count + 2), 0);
  complex_embedding(s, p, tensor(ids.data(), {count + 2}), arange(0, count + 2),
                    {tensor(re.data(), {count + 2, 8}), tensor(im.data(), {count + 2, 8})});
  Values all;
  for (const double sign : {1.0, -1.0})  // of the key's imaginary part: conjugated, or not
    for (Index i = 0; i < count; ++i) {
      double a = 0, b = 0;
      for (Index c = 0; c < 8; ++c) {
        const std::size_t q = at(i * 8 + c), k = q + 16;
        a += re[q] * re[k] + sign * im[q] * im[k], b += im[q] * re[k] - sign * re[q] * im[k];
      }
      all.push_back(std::hypot(a, b));
    }
  print("complex_order", all, count);
}

void convolution() {
  const Convolutional s{.width = 8, .kernel = 16, .groups = 2, .add = false};
  const auto parameters = s.parameters();
  std::vector<Values> values = started(parameters, 7);
  const Index tokens = 48;
  Values x(at(tokens * 8), 1.0), y(x.size()), by_channel;
  convolutional_positions(s, views(parameters, values), tensor(x.data(), {tokens, 8}),
                          tensor(y.data(), {tokens, 8}));
  for (Index c = 0; c < 4; ++c)
    for (const double v : channel(y, 8, c)) by_channel.push_back(v);
  print("convolutional", by_channel, tokens);
}

void modalities() {
  const Modality clip[] = {{0, arange(0, 8), {0}, {0.5}, {0}},
                           {1, arange(0, 4), {0}, {1}, {0}},
                           {2, arange(0, 175), {0}, {0.02}, {0.5}}};
  const OwnedPositions p = modality_positions(clip, 1);
  CrossModal s;
  s.width = 64, s.modalities = 3, s.widths = {64}, s.scale = {20}, s.init = 0;
  const Values like = likeness(rows(s, p, 64), 64, 3);
  Values table;
  for (Index t = 0; t < p.count(); ++t)
    table.insert(table.end(), {position_at(p, 0, 0, t), position_at(p, 1, 0, t), like[at(t)]});
  print("crossmodal", table, 3);
}

// Which stream each of 64 pairs follows: -1 t, 0 h, 1 w; one row a layout.
void streams() {
  const std::pair<MropeLayout, std::vector<Index>> cases[] = {
      {MropeLayout::chunked, {16, 24, 24}},
      {MropeLayout::interleaved, {24, 20, 20}},
      {MropeLayout::ernie, {22, 22, 20}},
      {MropeLayout::openpangu, {24, 20, 20}}};
  Values all;
  for (const auto& [layout, sections] : cases)
    for (const Index axis : mrope_axes(layout, sections, 64))
      all.push_back(static_cast<double>(axis - 1));
  print("mrope", all, 64);
}

// Score of q = k = ones of the middle patch with every patch of 15 x 15: the mean of the cosines.
void scores() {
  const auto map = [](const char* name, const RotarySpec& spec) {
    const Index n = 15;
    Values v;
    for (Index y = 0; y < n; ++y)
      for (Index x = 0; x < n; ++x) {
        double sum = 0, count = 0;
        for (const RotaryBlock& b : spec.blocks)
          for (Index i = 0; i < b.pairs(); ++i, ++count)
            sum +=
                std::cos(static_cast<double>(y - n / 2) * b.spectrum.frequency[at(i)] +
                         static_cast<double>(x - n / 2) * b.spectrum.frequency[at(b.pairs() + i)]);
        v.push_back(sum / count);
      }
    print(name, v, n);
  };
  const Axial wide = axial_presets::qwen2_vl_vision(64), narrow = axial_presets::rope_vit(64);
  map("axial_10000", wide.place(wide.spectrum()));
  map("axial_100", narrow.place(narrow.spectrum()));
  MixedAxes mixed;  // the frequencies of the second, each in a direction of its own
  mixed.head_dim = 64, mixed.axes = 2, mixed.pairing = Pairing::interleaved;
  mixed.frequencies.resize(64);
  for (Index i = 0; i < 32; ++i) {
    const double f = std::pow(100, -static_cast<double>(i / 2) / 16);
    const double turn = 6.283185307179586 * Draws(3).uniform(static_cast<std::uint64_t>(i));
    mixed.frequencies[at(i)] = f * std::cos(turn),
    mixed.frequencies[at(32 + i)] = f * std::sin(turn);
  }
  map("mixed_axes", mixed.place(mixed.spectrum()));
}

// Frequency after over before, 64 pairs, everything by 4.
void scalings() {
  const char* chains[] = {
      "linear factor=4", "ntk factor=4 formula=alpha", "ntk factor=4 formula=fixed",
      "yarn factor=4 original_context=4096",
      "llama3 factor=4 low_freq_factor=1 high_freq_factor=4 original_context=4096"};
  const std::string rope = "rope head_dim=128 pairing=half_split";
  const Values before = resolve(parse_encoding(rope)).blocks[0].spectrum.frequency;
  Values all;
  for (const char* chain : chains) {
    const Values after = resolve(parse_encoding(rope + " + " + chain)).blocks[0].spectrum.frequency;
    for (std::size_t i = 0; i < 64; ++i) all.push_back(after[i] / before[i]);
  }
  print("scalings", all, 64);
}

}  // namespace

int main() {
  for (void (*const print_block)() :
       {streams, scores, scalings, compose, grids, fourier, drawn, resized, text, window, distances,
        complex_words, convolution, modalities, print_learned, print_terms})
    print_block();
}
