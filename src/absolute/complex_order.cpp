// SPDX-License-Identifier: Apache-2.0
#include "posenc/absolute/complex_order.h"

#include <cmath>
#include <map>

#include "absolute/rows.h"
#include "core/known_enum.h"
#include "core/shape.h"
#include "phase/rows.h"
#include "posenc/core/error.h"
#include "posenc/phase.h"
#include "posenc/positions/sequence.h"
#include "positions/exact.h"

namespace posenc::inline v0 {
namespace {

constexpr const char* kComplexOrder = "complex_order";

std::vector<Index> shape_of(const ComplexOrder& s, WordSharing sharing) {
  if (sharing == WordSharing::per_channel) return {s.width};
  return {s.vocabulary, sharing == WordSharing::per_word ? 1 : s.width};
}
// Where the number of word w and channel c stands.
Index at(const ComplexOrder& s, WordSharing sharing, Index w, Index c) {
  if (sharing == WordSharing::per_channel) return c;
  return sharing == WordSharing::per_word ? w : w * s.width + c;
}

// Everything a call needs: parameters in double, words, tokens by word.
struct OrderCall {
  std::vector<Parameter> parameters;
  std::vector<double> amplitude, frequency, phase;
  IntegerRows ids;
  std::map<Index, std::vector<Index>> tokens_of_word;  // token = row * tokens + index
};

OrderCall check_call(const ComplexOrder& s, std::span<const ConstTensorView> p,
                     const ConstTensorView& ids, const Positions& at_positions,
                     const ConstTokenView& re, const ConstTokenView& im) {
  OrderCall c;
  c.parameters = s.parameters();
  check_parameter_count(kComplexOrder, c.parameters.size(), p.size());
  c.amplitude = parameter_values(kComplexOrder, c.parameters[0], p[0]);
  c.frequency = parameter_values(kComplexOrder, c.parameters[1], p[1]);
  if (p.size() > 2) c.phase = parameter_values(kComplexOrder, c.parameters[2], p[2]);
  c.ids = integer_rows(ids, kComplexOrder);
  for (const ConstTokenView* part : {&re, &im})
    if (part->batch != c.ids.batch || part->tokens != c.ids.tokens || part->width != s.width)
      detail::refuse_shape(kComplexOrder,
                           "both parts must have the tokens of the ids and the width, " +
                               detail::sizes_text({c.ids.batch, c.ids.tokens, s.width}),
                           detail::sizes_text({part->batch, part->tokens, part->width}));
  if (at_positions.count != c.ids.tokens ||
      (at_positions.batch != 1 && at_positions.batch != c.ids.batch) || at_positions.axes != 1)
    refuse_field(
        kComplexOrder, "positions",
        "must be one for each of the " + std::to_string(c.ids.tokens) + " tokens, on one axis",
        at_positions.count);
  detail::check_positions(at_positions, kComplexOrder);
  for (std::size_t i = 0; i < c.ids.value.size(); ++i) {
    const Index w = c.ids.value[i];
    if (w < 0 || w >= s.vocabulary) refuse(kComplexOrder, "a word must have a row", w);
    c.tokens_of_word[w].push_back(static_cast<Index>(i));
  }
  for (const auto& [word, tokens] : c.tokens_of_word)
    for (Index k = 0; k < s.width; ++k)
      if (const double f = c.frequency[static_cast<std::size_t>(at(s, s.frequency, word, k))];
          !std::isfinite(f))
        refuse_field(kComplexOrder, "frequencies", "must be finite", f);
  return c;
}

// cos and sin of omega p + theta for the tokens of one word, [token, channel].
struct Angles {
  std::vector<double> cosine, sine;
};
Angles angles_of(const ComplexOrder& s, const OrderCall& c, Index word,
                 const std::vector<Index>& tokens, const Positions& p) {
  Spectrum spectrum;
  for (Index k = 0; k < s.width; ++k)
    spectrum.frequency.push_back(
        c.frequency[static_cast<std::size_t>(at(s, s.frequency, word, k))]);
  const auto row = [&](Index token) { return p.batch == 1 ? 0 : token / c.ids.tokens; };
  OwnedPositions here;
  if (p.type == DType::f64) {
    std::vector<double> v;
    for (const Index t : tokens) v.push_back(position_at(p, 0, row(t), t % c.ids.tokens));
    here = explicit_positions(std::move(v));
  } else {
    std::vector<Index> v;
    for (const Index t : tokens) v.push_back(integer_position_at(p, 0, row(t), t % c.ids.tokens));
    here = explicit_positions(std::move(v));
  }
  const auto n = static_cast<Index>(tokens.size());
  Angles a{std::vector<double>(static_cast<std::size_t>(n * s.width)),
           std::vector<double>(static_cast<std::size_t>(n * s.width))};
  phase_rows(spectrum, here, tensor(a.cosine.data(), {n, s.width}),
             tensor(a.sine.data(), {n, s.width}));
  if (c.phase.empty()) return a;
  for (Index i = 0; i < n * s.width; ++i) {
    const auto to = static_cast<std::size_t>(i);
    const double theta = c.phase[static_cast<std::size_t>(at(s, s.phase, word, i % s.width))];
    const double x = a.cosine[to], y = a.sine[to];
    a.cosine[to] = x * std::cos(theta) - y * std::sin(theta);
    a.sine[to] = y * std::cos(theta) + x * std::sin(theta);
  }
  return a;
}

}  // namespace

std::vector<Parameter> ComplexOrder::parameters() const {
  if (width < 1 || width > 1000000) refuse_field(kComplexOrder, "width", "must be positive", width);
  if (vocabulary < 1 || vocabulary > kUnbounded / 16 / width)
    refuse_field(kComplexOrder, "vocabulary", "must be positive and its tables must fit memory",
                 vocabulary);
  if (frequency == WordSharing::none)
    refuse_field(kComplexOrder, "frequency",
                 "must not be none: without frequencies there is no position");
  if (!std::isfinite(amplitude_gain))
    refuse_field(kComplexOrder, "amplitude_gain", "must be finite", amplitude_gain);
  std::vector<Parameter> all{
      {"amplitude", {vocabulary, width}, initial_of(initializer, init, vocabulary, width), {}},
      {"frequency", shape_of(*this, frequency), {InitialKind::normal, 0, 1}, {}}};
  if (phase != WordSharing::none)
    all.push_back(
        {"phase", shape_of(*this, phase), {InitialKind::uniform, 0, 6.283185307179586}, {}});
  return all;
}

std::vector<double> complex_frequencies(const ComplexOrder& s, ComplexStart start) {
  detail::check_known("complex_order", "start", start);
  const std::vector<Index> shape = s.parameters()[1].shape;
  const Index words = s.frequency == WordSharing::per_channel ? 1 : s.vocabulary;
  const Index channels = s.frequency == WordSharing::per_word ? 1 : s.width;
  std::vector<double> v;
  for (Index w = 0; w < words; ++w)
    for (Index c = 0; c < channels; ++c) {
      const bool by_word = start == ComplexStart::convolutional;
      const auto e = static_cast<double>(by_word ? 2 * c : c / 2 * 2);
      const double omega = std::pow(10000.0, -e / static_cast<double>(s.width));
      v.push_back(by_word ? static_cast<double>(words == 1 ? 1 : w) * omega : omega);
    }
  return v;
}

void complex_embedding(const ComplexOrder& s, std::span<const ConstTensorView> p,
                       const ConstTensorView& ids, const Positions& at_positions,
                       const ComplexParts& y) {
  const TokenView re = tokens_of(y.re, "re"), im = tokens_of(y.im, "im");
  const OrderCall c = check_call(s, p, ids, at_positions, re, im);
  for (const auto& [word, tokens] : c.tokens_of_word) {
    const Angles a = angles_of(s, c, word, tokens, at_positions);
    std::size_t from = 0;
    for (const Index t : tokens)
      for (Index k = 0; k < s.width; ++k, ++from) {
        const double r =
            s.amplitude_gain * c.amplitude[static_cast<std::size_t>(word * s.width + k)];
        re.put(t / c.ids.tokens, t % c.ids.tokens, k, r * a.cosine[from]);
        im.put(t / c.ids.tokens, t % c.ids.tokens, k, r * a.sine[from]);
      }
  }
}

void complex_embedding_gradient(const ComplexOrder& s, std::span<const ConstTensorView> p,
                                const ConstTensorView& ids, const Positions& at_positions,
                                const ConstComplexParts& d_y,
                                std::span<const TensorView> d_parameters,
                                const TensorView& d_position) {
  const ConstTokenView re = tokens_of(d_y.re, "d re"), im = tokens_of(d_y.im, "d im");
  const OrderCall c = check_call(s, p, ids, at_positions, re, im);
  check_gradients(kComplexOrder, c.parameters, d_parameters);
  if (!d_position.empty() &&
      (d_position.dtype != DType::f64 || d_position.rank != 2 ||
       d_position.shape[0] != at_positions.batch || d_position.shape[1] != at_positions.count))
    detail::refuse_shape(kComplexOrder,
                         "gradient of positions must be [" + std::to_string(at_positions.batch) +
                             ", " + std::to_string(at_positions.count) + "] of f64",
                         d_position);
  std::vector<double> d_r(c.amplitude.size(), 0), d_w(c.frequency.size(), 0),
      d_theta(c.phase.size(), 0);
  for (const auto& [word, tokens] : c.tokens_of_word) {
    const Angles a = angles_of(s, c, word, tokens, at_positions);
    std::size_t from = 0;
    for (const Index t : tokens) {
      const Index b = t / c.ids.tokens, i = t % c.ids.tokens;
      const Index row = at_positions.batch == 1 ? 0 : b;
      const double position = position_at(at_positions, 0, row, i);
      double by_position = 0;
      for (Index k = 0; k < s.width; ++k, ++from) {
        const auto r = static_cast<std::size_t>(word * s.width + k);
        const auto w = static_cast<std::size_t>(at(s, s.frequency, word, k));
        const double x = re.get(b, i, k), y = im.get(b, i, k);
        if (s.padding_word != word)
          d_r[r] += s.amplitude_gain * (a.cosine[from] * x + a.sine[from] * y);
        const double by_angle =
            s.amplitude_gain * c.amplitude[r] * (a.cosine[from] * y - a.sine[from] * x);
        d_w[w] += position * by_angle;
        by_position += c.frequency[w] * by_angle;
        if (!c.phase.empty())
          d_theta[static_cast<std::size_t>(at(s, s.phase, word, k))] += by_angle;
      }
      if (!d_position.empty())
        static_cast<double*>(
            d_position.data)[row * d_position.stride[0] + i * d_position.stride[1]] += by_position;
    }
  }
  accumulate(kComplexOrder, c.parameters[0], d_parameters[0], d_r);
  accumulate(kComplexOrder, c.parameters[1], d_parameters[1], d_w);
  if (!c.phase.empty()) accumulate(kComplexOrder, c.parameters[2], d_parameters[2], d_theta);
}

namespace complex_order_presets {

ComplexOrder paper(Index width, Index vocabulary) {
  return {.width = width, .vocabulary = vocabulary, .phase = WordSharing::per_word_and_channel};
}
ComplexOrder transformer(Index width, Index vocabulary) {
  return {.width = width, .vocabulary = vocabulary, .padding_word = 0};
}
ComplexOrder convolutional(Index width, Index vocabulary) {
  return {.width = width, .vocabulary = vocabulary, .initializer = TableInitial::uniform};
}
ComplexOrder language_model(Index width, Index vocabulary) {
  return {.width = width,
          .vocabulary = vocabulary,
          .amplitude_gain = std::sqrt(static_cast<double>(width))};
}

}  // namespace complex_order_presets

}  // namespace posenc::v0
