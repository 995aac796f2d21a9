// SPDX-License-Identifier: Apache-2.0
// posenc bias: the part of the score that depends on positions alone.
#include <fmt/format.h>

#include <limits>
#include <memory>

#include "attention_call.h"
#include "call_words.h"
#include "posenc/report/bias.h"
#include "posenc/report/verb.h"

namespace posenc::report {

namespace {

// The schemes of a call, lowered for its distances, with the inputs that they read.
struct PlainTerms {
  NamedFiles files{};
  std::optional<LoweredAttention> lowered{};

  PlainTerms(const ScoreEncodings& e, const SubjectOptions& o, const std::string& params,
             const std::vector<std::string>& inputs, const PositionList& queries,
             const PositionList& keys, Index n_heads, Index head_dim) {
    AttentionSizes sizes{.heads = n_heads, .head_dim = head_dim};
    if (e.layer != nullptr && e.layer->scale) sizes.scale = e.layer->scale->at(head_dim);
    AttentionPlan plan = plan_of(e, nullptr, sizes, 0);
    files.read_parameters(plan.parameters(), params, o.start, e);
    files.read_inputs(plan.inputs(), inputs);
    lowered.emplace(plan.lower(files.parameters(), distance_ranges(queries, keys)));
    if (lowered->reads_content())
      throw InputError(
          fmt::format("\"{}\" reads queries or keys, so it has no bias; use posenc attend --terms",
                      fmt::join(e.texts, "\", \"")));
  }

  Array bias(const Positions& queries, const Positions& keys) const {
    const Index n_heads = lowered->sizes().heads;
    Array bias = make_array(DType::f64, {1, n_heads, queries.count, keys.count});
    lowered->bias(queries, keys, files.inputs(), bias.view());
    bias.shape = {n_heads, queries.count, keys.count};
    return bias;
  }

  // Sides of heads go by the order of a call, in which these queries have none: each is a call of its own,
  // whose key is visible to it, and the sign of the distance hides it.
  Array bias_of_sides(const PositionList& distances, const Positions& key) const {
    const ConstTensorView sides = lowered->requests().head_side;
    return std::visit([&](const auto& distance) { return bias_of_sides(distance, key, sides); },
                      distances.owned.value);
  }

 private:
  template <class Distance>
  Array bias_of_sides(const std::vector<Distance>& distance, const Positions& key,
                      const ConstTensorView& sides) const {
    const std::size_t count = distance.size();
    Array all = make_array(DType::f64, {lowered->sizes().heads, static_cast<Index>(count), 1});
    auto* to = reinterpret_cast<double*>(all.bytes.data());
    for (std::size_t i = 0; i < count; ++i) {
      const std::vector<double> one =
          bias(explicit_positions(std::vector<Distance>{distance[i]}), key).doubles();
      for (std::size_t h = 0; h < one.size(); ++h) {
        const auto side = static_cast<Side>(static_cast<const std::uint8_t*>(sides.data)[h]);
        const bool is_hidden =
            distance[i] < 0 ? side == Side::past : distance[i] > 0 && side == Side::future;
        to[h * count + i] = is_hidden ? -std::numeric_limits<double>::infinity() : one[h];
      }
    }
    return all;
  }
};

}  // namespace

Array plain_bias(const ScoreEncodings& e, const SubjectOptions& o, const std::string& params,
                 const std::vector<std::string>& inputs, const PositionList& queries,
                 const PositionList& keys, Index n_heads, Index head_dim) {
  return PlainTerms(e, o, params, inputs, queries, keys, n_heads, head_dim).bias(queries, keys);
}

// One key at 0: a query's position is its distance.
Array distance_bias(const ScoreEncodings& e, const SubjectOptions& o, const std::string& params,
                    const PositionList& distances, Index n_heads, Index head_dim,
                    const std::vector<std::string>& inputs) {
  for (const std::string& text : e.texts)
    if (const Encoding parsed = parse_encoding(text); std::holds_alternative<Alibi>(parsed.scheme))
      if (std::get<Alibi>(parsed.scheme).precision != AlibiPrecision::exact)
        throw InputError(fmt::format(
            "\"{}\" is not by distance: it is rounded at the position of each key. Give posenc "
            "bias "
            "the positions of queries and keys, or take the SCHEME without precision for the exact "
            "bias",
            text));
  const std::int32_t axes = distances.owned.axes;
  const PositionList key{
      explicit_positions(std::vector<Index>(static_cast<std::size_t>(axes), 0), 1, axes), {1}};
  const PlainTerms terms(e, o, params, inputs, distances, key, n_heads, head_dim);
  Array bias = terms.lowered->requests().head_side.empty() ? terms.bias(distances, key)
                                                           : terms.bias_of_sides(distances, key);
  bias.shape = {n_heads, distances.owned.count()};
  return bias;
}

Report bias(const BiasOptions& o) {
  SubjectOptions chosen = o.subject;
  chosen.sizes = {.heads = o.heads, .head_dim = o.head_dim};
  const Subject subject = read_subject(chosen);
  const ScoreEncodings e = bias_encodings(subject, chosen);
  const PositionList queries = read_positions(o.positions);
  if (o.by_distance && !o.key_positions.empty())
    throw UsageError("--by-distance has no --key-positions");
  const PositionList keys = o.key_positions.empty() ? queries : read_positions(o.key_positions);
  Array made = o.by_distance
                   ? distance_bias(e, chosen, o.params, queries, o.heads, o.head_dim, o.inputs)
                   : plain_bias(e, chosen, o.params, o.inputs, queries, keys, o.heads, o.head_dim);
  return {.schema = "posenc.bias/1", .arrays = {{"bias", std::move(made)}}};
}

namespace {

Verb::Run declare_bias(Words& w) {
  auto o = std::make_shared<BiasOptions>();
  w.subject(o->subject, Takes::model_or_scheme);
  w.whole("--heads", o->heads, 1, 65536, "N", "number of attention heads").required();
  w.whole("--head-dim", o->head_dim, 1, 65536, "N",
          "channels of a head, for schemes that depend on it")
      .otherwise("64");
  w.text("--positions", o->positions, "P",
         "positions of the queries: A:B[:STEP], a list or an .npy; with --by-distance distances")
      .required()
      .file();
  w.text("--key-positions", o->key_positions, "P",
         "positions of the keys (default: those of the queries)")
      .file();
  add_params(w, o->params);
  add_inputs(w, o->inputs);
  w.flag("--by-distance", o->by_distance,
         "one column for each distance query - key in --positions: [heads, distances]");
  w.output(Holds::one_array, "F.npy, F.safetensors or F.csv: [heads, queries, keys]").required();
  return [o](const Request&) { return bias(*o); };
}

}  // namespace

const Verb bias_verb{
    "bias", "compute what a scheme adds to the attention score, for schemes that read no content",
    &declare_bias,
    "Examples:\n  posenc bias alibi --heads 8 --positions 0:128 -o bias.npy\n"
    "  posenc bias \"t5 bidirectional=true\" --heads 4 --start 1 --positions=-128:129 "
    "--by-distance -o bias.csv\n"
    "  posenc bias \"kerple kernel=log\" --heads 8 --start 1 --positions 7 --key-positions 0:8 "
    "-o row.npy"};

}  // namespace posenc::report
