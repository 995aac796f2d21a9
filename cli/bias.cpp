// SPDX-License-Identifier: Apache-2.0
// posenc bias: the part of the score that reads neither query nor key.
#include <fmt/format.h>

#include "attention_call.h"
#include "verbs.h"

namespace posenc::cli {

Array plain_bias(const ScoreEncodings& e, const SubjectOptions& o, const std::string& params,
                 const std::vector<std::string>& inputs, const PositionList& queries,
                 const PositionList& keys, Index n_heads, Index head_dim) {
  AttentionSizes sizes{.heads = n_heads, .head_dim = head_dim};
  if (e.layer != nullptr && e.layer->scale) sizes.scale = e.layer->scale->at(head_dim);
  AttentionPlan plan = plan_of(e, nullptr, sizes, 0);
  NamedFiles files;
  files.read_parameters(plan.parameters(), params, o.start, e);
  files.read_inputs(plan.inputs(), inputs);
  plan.lower(files.parameters(), distance_ranges(queries, keys));
  if (plan.reads_content())
    throw InputError(fmt::format(
        "\"{}\" reads queries or keys: no bias says what it adds; posenc attend --terms does",
        fmt::join(e.texts, "\", \"")));
  Array bias = make_array(DType::f64, {1, n_heads, queries.owned.count(), keys.owned.count()});
  plan.bias(queries, keys, files.inputs(), bias.view());
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
            "\"{}\" goes by the positions of keys, not by distance: give positions of queries and "
            "keys to posenc bias",
            text));
  const std::int32_t axes = distances.owned.axes;
  const PositionList key{
      explicit_positions(std::vector<Index>(static_cast<std::size_t>(axes), 0), 1, axes), {1}};
  Array bias = plain_bias(e, o, params, inputs, distances, key, n_heads, head_dim);
  bias.shape = {n_heads, distances.owned.count()};
  return bias;
}

int bias_verb(const BiasOptions& o) {
  (void)array_format(o.output);
  if (o.json && is_stdout(o.output.path))
    throw UsageError("--json and the data cannot both go to stdout");
  refuse_overwriting(o.output.path, {o.params, o.positions, o.key_positions, o.subject.arrays},
                     o.subject.text);
  SubjectOptions chosen = o.subject;
  chosen.sizes = {.heads = o.heads, .head_dim = o.head_dim};
  const Subject subject = read_subject(chosen);
  const ScoreEncodings e = bias_encodings(subject, chosen);
  PositionList queries = read_positions(o.positions);
  PositionList keys = o.key_positions.empty() ? queries : read_positions(o.key_positions);
  Arrays all;
  if (o.by_distance) {
    if (!o.key_positions.empty()) throw UsageError("--by-distance has no --key-positions");
    all.emplace("bias", distance_bias(e, chosen, o.params, queries, o.heads, o.head_dim, o.inputs));
  } else {
    all.emplace("bias",
                plain_bias(e, chosen, o.params, o.inputs, queries, keys, o.heads, o.head_dim));
  }
  write_arrays(o.output, all);
  report_written("posenc.bias/1", o.output.path, all, o.json);
  return kSuccess;
}

}  // namespace posenc::cli
