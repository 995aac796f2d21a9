// SPDX-License-Identifier: Apache-2.0
#include "distance_bias.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "posenc/absolute/initial.h"

namespace posenc::cli {
namespace {

bool has_bias(const Encoding& e) {
  return std::holds_alternative<Alibi>(e.scheme) || std::holds_alternative<T5>(e.scheme);
}

std::vector<double> bias_of(const Alibi& a, Index heads, const std::vector<Index>& distances) {
  (void)a.parameters({heads, 2, 0, 0});  // refuses fields that cannot be
  const std::vector<double> slope = a.slope(heads);
  std::vector<double> out;
  for (const double m : slope)
    for (const Index d : distances) {
      const auto x = static_cast<double>(d);
      double bias = -m * (a.future == AlibiFuture::symmetric ? std::abs(x) : x);
      if (d > 0) bias += a.past_offset * m;
      out.push_back(a.bias_scale * bias);
    }
  return out;
}

// Its table, [num_buckets, heads].
std::vector<double> learned_by(const Parameter& p, const SubjectOptions& o) {
  if (o.start) return initial_values(p, Draws(static_cast<std::uint64_t>(*o.start), 0, 0));
  if (o.arrays.empty())
    throw InputError(
        "t5 learns its table, and it is not read from a model's weights: give a SCHEME with "
        "--arrays F.safetensors that holds an array \"table\" of [num_buckets, heads], or with "
        "--start SEED for one as it is before training");
  const Arrays held = read_safetensors(o.arrays);
  const auto found = held.find(p.name);
  if (found == held.end() || found->second.shape != p.shape)
    throw InputError(fmt::format("{}: t5 needs an array \"{}\" of shape [{}]", o.arrays, p.name,
                                 fmt::join(p.shape, ", ")));
  return found->second.doubles();
}

std::vector<double> bias_of(const T5& t, Index heads, const std::vector<Index>& distances,
                            const SubjectOptions& o) {
  constexpr Index kHeadDim = 64;  // of T5's own models; the spread of a start depends on it
  const std::vector<double> table = learned_by(t.parameters({heads, kHeadDim, 0, 0})[0], o);
  const std::vector<Index> thresholds = t5_thresholds(t.side(), t.max_distance);
  std::vector<double> out;
  for (Index h = 0; h < heads; ++h)
    for (const Index d : distances)
      out.push_back(t.bias_scale *
                    table[static_cast<std::size_t>(t.bucket(d, thresholds) * heads + h)]);
  return out;
}

}  // namespace

const Encoding& biased_by(const Subject& s, const SubjectOptions& o) {
  if (s.encoding) {
    if (has_bias(*s.encoding)) return *s.encoding;
    throw InputError(fmt::format("\"{}\" adds no bias by distance: alibi and t5 do", s.title));
  }
  require_readable(*s.model);
  const std::vector<LayerSpec>& layers = layers_of(*s.model, o);
  for (const LayerSpec& l : layers)
    if (!o.layer || l.index == *o.layer)
      for (const auto& e : l.encodings)
        if (has_bias(e.value)) return e.value;
  throw InputError(
      fmt::format("{}: no layer that was asked for has ALiBi's or T5's bias", s.model->file));
}

Array distance_bias(const Encoding& e, const SubjectOptions& o, Index heads,
                    const std::vector<Index>& distances) {
  const auto* alibi = std::get_if<Alibi>(&e.scheme);
  const std::vector<double> v = alibi ? bias_of(*alibi, heads, distances)
                                      : bias_of(std::get<T5>(e.scheme), heads, distances, o);
  Array out = make_array(DType::f64, {heads, static_cast<Index>(distances.size())});
  if (!v.empty()) std::memcpy(out.bytes.data(), v.data(), out.bytes.size());
  return out;
}

std::vector<Index> distances_of(const PositionList& list) {
  const auto* whole = std::get_if<std::vector<Index>>(&list.owned.value);
  if (whole == nullptr || list.owned.axes != 1 || list.owned.batch != 1)
    throw UsageError("--positions of a bias are one list of whole distances, query - key");
  return *whole;
}

}  // namespace posenc::cli
