// SPDX-License-Identifier: Apache-2.0
// posenc bias: the part of the score that depends on positions alone.
#include <fmt/format.h>

#include <memory>

#include "attention_call.h"
#include "call_words.h"
#include "posenc/report/bias.h"
#include "posenc/report/verb.h"

namespace posenc::report {

Array plain_bias(const ScoreEncodings& e, const SubjectOptions& o, const std::string& params,
                 const std::vector<std::string>& inputs, const PositionList& queries,
                 const PositionList& keys, Index n_heads, Index head_dim) {
  AttentionSizes sizes{.heads = n_heads, .head_dim = head_dim};
  if (e.layer != nullptr && e.layer->scale) sizes.scale = e.layer->scale->at(head_dim);
  AttentionPlan plan = plan_of(e, nullptr, sizes, 0);
  NamedFiles files;
  files.read_parameters(plan.parameters(), params, o.start, e);
  files.read_inputs(plan.inputs(), inputs);
  const LoweredAttention lowered = plan.lower(files.parameters(), distance_ranges(queries, keys));
  if (lowered.reads_content())
    throw InputError(
        fmt::format("\"{}\" reads queries or keys, so it has no bias; use posenc attend --terms",
                    fmt::join(e.texts, "\", \"")));
  Array bias = make_array(DType::f64, {1, n_heads, queries.owned.count(), keys.owned.count()});
  lowered.bias(queries, keys, files.inputs(), bias.view());
  bias.shape = {n_heads, queries.owned.count(), keys.owned.count()};
  return bias;
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
  Array bias = plain_bias(e, o, params, inputs, distances, key, n_heads, head_dim);
  bias.shape = {n_heads, distances.owned.count()};
  return bias;
}

namespace {}  // namespace

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
