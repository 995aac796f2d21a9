// SPDX-License-Identifier: Apache-2.0
// Instances of the modules at the input, and how each is run over documents. A new one without
// these does not compile: add overloads here.
#pragma once
#include "laws/arrangement.h"
#include "laws/numbers.h"
#include "laws/samples.h"
#include "posenc/positions.h"

namespace posenc::test {

inline std::vector<ComplexOrder> samples(Type<ComplexOrder>) {
  ComplexOrder s;
  s.width = 3, s.vocabulary = 5;
  return variants(
      s, [](ComplexOrder& x) { x.phase = WordSharing::per_word_and_channel; },
      [](ComplexOrder& x) { x.frequency = WordSharing::per_channel, x.padding_word = 2; },
      [](ComplexOrder& x) { x.frequency = WordSharing::per_word, x.amplitude_gain = 2; });
}
inline std::vector<Convolutional> samples(Type<Convolutional>) {
  Convolutional s;
  s.width = 4, s.kernel = 4, s.groups = 2;
  return variants(
      s, [](Convolutional& x) { x.weight_norm = false, x.kernel = 3; },
      [](Convolutional& x) { x.add = false, x.kernel = 1; });
}
inline std::vector<DistanceOffset> samples(Type<DistanceOffset>) {
  DistanceOffset s;
  s.width = 3, s.window = 2;
  return variants(
      s, [](DistanceOffset& x) { x.causal = true; }, [](DistanceOffset& x) { x.window = 0; });
}

// Padding between two documents in one row that keeps them apart.
inline Index gap_of(const ComplexOrder&) {
  return 0;
}
inline Index gap_of(const Convolutional& s) {
  return s.kernel;
}
inline Index gap_of(const DistanceOffset&) {
  return 0;
}

// [slots, width] of waves by the token's place; padding gets `padded`.
inline Numbers token_waves(const Arrangement& a, const std::vector<Index>& lengths, Index width,
                           double phase, double padded) {
  Numbers n{{}, {a.batch, a.tokens, width}};
  for (const Slot& s : a.slots)
    for (Index c = 0; c < width; ++c)
      n.value.push_back(
          s.document < 0 ? padded
                         : std::sin(1.7 * static_cast<double>(
                                              static_cast<Index>(place(lengths, s)) * width + c) +
                                    phase));
  return n;
}
// `each` numbers a slot go to the tokens that stand there.
inline void give(Outcome& out, const Arrangement& a, const std::vector<Index>& lengths,
                 const std::vector<double>& numbers) {
  const std::size_t each = numbers.size() / a.slots.size();
  std::size_t tokens = 0;
  for (const Index n : lengths) tokens += static_cast<std::size_t>(n);
  out.tokens.resize(tokens);
  for (std::size_t i = 0; i < a.slots.size(); ++i) {
    if (a.slots[i].document < 0) continue;
    std::vector<double>& to = out.tokens[place(lengths, a.slots[i])];
    const auto from = numbers.begin() + static_cast<std::ptrdiff_t>(i * each);
    to.insert(to.end(), from, from + static_cast<std::ptrdiff_t>(each));
  }
}
inline void give_sums(Outcome& out, const std::vector<Numbers>& gradients) {
  for (const Numbers& n : gradients)
    out.sums.insert(out.sums.end(), n.value.begin(), n.value.end());
}

// Words by place, positions within the document.
inline Outcome run_module(const ComplexOrder& s, const Arrangement& a,
                          const std::vector<Index>& lengths) {
  std::vector<Numbers> p = waves_for(s.parameters()), dp = zeros_for(s.parameters());
  std::vector<Index> ids, at;
  for (const Slot& slot : a.slots) {
    ids.push_back(slot.document < 0 ? 0 : static_cast<Index>(place(lengths, slot)) * 3 % 5);
    at.push_back(slot.document < 0 ? 77 : slot.at);
  }
  const OwnedPositions positions = explicit_positions(at, a.batch);
  const ConstTensorView id = tensor(ids.data(), {a.batch, a.tokens});
  Numbers re = waves({a.batch, a.tokens, s.width}, 0, 0), im = re;
  complex_embedding(s, const_views(views(p)), id, positions, {re.view(), im.view()});
  Numbers d_re = token_waves(a, lengths, s.width, 0.4, 0),
          d_im = token_waves(a, lengths, s.width, 1.4, 0);
  Numbers d_at = waves({a.batch, a.tokens}, 0, 0);
  complex_embedding_gradient(s, const_views(views(p)), id, positions, {d_re.view(), d_im.view()},
                             views(dp), d_at.view());
  Outcome out;
  for (const Numbers* n : {&re, &im, &d_at}) give(out, a, lengths, n->value);
  give_sums(out, dp);
  return out;
}

// Padding is the caller's to zero.
inline Outcome run_module(const Convolutional& s, const Arrangement& a,
                          const std::vector<Index>& lengths) {
  std::vector<Numbers> p = waves_for(s.parameters()), dp = zeros_for(s.parameters());
  Numbers x = token_waves(a, lengths, s.width, 0.1, 0), y = x, d_x = x;
  Numbers up = token_waves(a, lengths, s.width, 0.4, 0);
  convolutional_positions(s, const_views(views(p)), x.view(), y.view());
  convolutional_gradient(s, const_views(views(p)), x.view(), up.view(), d_x.view(), views(dp));
  Outcome out;
  for (const Numbers* n : {&y, &d_x}) give(out, a, lengths, n->value);
  give_sums(out, dp);
  return out;
}

// Every document a run of the boundaries, every slot of padding one of its own.
inline Outcome run_module(const DistanceOffset& s, const Arrangement& a,
                          const std::vector<Index>& lengths) {
  std::vector<Numbers> p = waves_for(s.parameters()), dp = zeros_for(s.parameters());
  std::vector<Index> ends{0};
  for (Index b = 0; b < a.batch; ++b)
    for (Index t = 0; t < a.tokens; ++t) {
      const bool goes_on = t + 1 < a.tokens && a.slot(b, t).document >= 0 &&
                           a.slot(b, t + 1).document == a.slot(b, t).document;
      if (!goes_on) ends.push_back(b * a.tokens + t + 1);
    }
  Numbers x = token_waves(a, lengths, s.width, 0.1, std::nan(""));
  Numbers up = token_waves(a, lengths, s.width, 0.4, 0);
  x.shape = up.shape = {a.batch * a.tokens, s.width};
  Numbers y = x;
  add_distance_offset(s, p[0].view(), x.view(), ends, y.view());
  distance_offset_gradient(s, up.view(), ends, dp[0].view());
  Outcome out;
  give(out, a, lengths, y.value);
  give_sums(out, dp);
  return out;
}

}  // namespace posenc::test
