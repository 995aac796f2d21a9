// SPDX-License-Identifier: Apache-2.0
// The four terms of Transformer-XL and DeBERTa on 24 tokens of random words; drawn distances.
#include "numbers.h"
#include "posenc/attention/plan.h"
#include "posenc/positions/random.h"

namespace posenc_pictures {
namespace {

constexpr Index kTokens = 24, kDim = 16;

Values normal(Index count, std::uint64_t sequence, double deviation) {
  const Draws draws(5, 0, sequence);
  Values v;
  for (Index i = 0; i < count; ++i)
    v.push_back(deviation * draws.normal(static_cast<std::uint64_t>(i)));
  return v;
}

// Rows that change slowly, as those of neighbouring distances do after training.
Values smooth(const Values& rows, Index channels) {
  constexpr Index kWidth = 6;
  Values v(rows.size());
  const Index n = static_cast<Index>(rows.size()) / channels;
  for (Index r = 0; r < n; ++r)
    for (Index near = r; near < std::min(r + kWidth, n); ++near)
      for (Index c = 0; c < channels; ++c)
        v[at(r * channels + c)] += rows[at(near * channels + c)] / std::sqrt(double{kWidth});
  return v;
}

// Learned arrays of such a deviation that each part is of the size of the words'.
void four_terms(const std::string& name, const char* scheme, double deviation) {
  const AttentionPlan plan(scheme, {.heads = 1, .head_dim = kDim});
  std::vector<Parameter> parameters = plan.parameters();
  std::vector<Values> values;
  std::vector<NamedArray> named;
  for (const Parameter& p : parameters) {
    Index count = 1;
    for (const Index n : p.shape) count *= n;
    const bool matrix = p.name == "w_kr";
    values.push_back(normal(count, 10 + values.size(), matrix ? deviation / 4 : deviation));
    if (p.shape.size() == 3) values.back() = smooth(values.back(), p.shape[2]);
  }
  for (std::size_t i = 0; i < parameters.size(); ++i)
    named.push_back({parameters[i].name, tensor(static_cast<const void*>(values[i].data()),
                                                DType::f64, parameters[i].shape)});
  const DistanceRange distances[] = {{1 - kTokens, kTokens - 1}};
  const LoweredAttention lowered = plan.lower(named, distances);
  const Values q = normal(kTokens * kDim, 1, 1), k = normal(kTokens * kDim, 2, 1);
  AttentionArgs call;
  call.q = ConstHeads(heads(q.data(), kTokens, 1, kDim));
  call.k = call.v = ConstHeads(heads(k.data(), kTokens, 1, kDim));
  Values parts[4];
  for (Values& x : parts) x.resize(at(kTokens * kTokens));
  const auto write = [](Values& x) { return tensor(x.data(), {1, 1, kTokens, kTokens}); };
  AttentionScores s;
  s.content = write(parts[0]), s.query_position = write(parts[1]);
  s.position_key = write(parts[2]), s.position_position = write(parts[3]);
  lowered.scores(call, {}, s);
  const char* names[] = {"_content", "_query", "_key", "_position"};
  for (std::size_t i = 0; i < 4; ++i) print(name + names[i], parts[i], kTokens);
}

// What the first head of ALiBi adds at each distance, in three steps of training.
void drawn_distances() {
  constexpr Index kLonger = 256, kText = 64;
  Values added;
  for (std::uint64_t step = 1; step <= 3; ++step)
    for (const Index d : random_distances(kLonger, kText, {.seed = 1, .step = step}))
      added.push_back(-static_cast<double>(d) / 256);
  print("drawn_distances", added, kText);
}

}  // namespace

void print_terms() {
  drawn_distances();
  four_terms("xl", "transformer_xl d_model=32", 0.8);
  four_terms("deberta",
             "deberta max_relative_positions=24 position_buckets=0 projection=tables count=1", 0.8);
}

}  // namespace posenc_pictures
