// SPDX-License-Identifier: Apache-2.0
// posenc bias: the part of the score that reads neither query nor key.
#include <fmt/format.h>

#include <algorithm>

#include "attention_call.h"
#include "verbs.h"

namespace posenc::cli {
namespace {

// Attention of queries and keys that are zero.
struct ZeroCall {
  Array q, k;
  AttentionArgs args;

  ZeroCall(const PositionList& queries, const PositionList& keys, Index n_heads, Index dim)
      : q(make_array(DType::f64, {queries.owned.count(), n_heads, dim})),
        k(make_array(DType::f64, {keys.owned.count(), n_heads, dim})) {
    args.q = heads(std::as_const(q).view(), HeadsLayout::thd);
    args.k = args.v = heads(std::as_const(k).view(), HeadsLayout::thd);
    args.query_positions = queries;
    args.key_positions = keys;
  }
};

}  // namespace

Array plain_bias(const ScoreEncodings& e, const SubjectOptions& o, const std::string& params,
                 const std::vector<std::string>& inputs, const PositionList& queries,
                 const PositionList& keys, Index n_heads, Index head_dim) {
  AttentionSizes sizes{.heads = n_heads, .head_dim = head_dim};
  if (e.layer != nullptr && e.layer->scale) sizes.scale = e.layer->scale->at(head_dim);
  AttentionPlan plan = plan_of(e, nullptr, sizes, 0);
  NamedFiles files;
  files.read_parameters(plan.parameters(), params, o.start, e);
  files.read_inputs(plan.inputs(), inputs);
  const ZeroCall call(queries, keys, n_heads, head_dim);
  plan.lower(files.parameters(), distance_ranges(queries, keys));
  if (plan.reads_content())
    throw InputError(fmt::format(
        "\"{}\" reads queries or keys: no bias says what it adds; posenc attend --terms does",
        fmt::join(e.texts, "\", \"")));
  Array bias = make_array(DType::f64, {1, n_heads, queries.owned.count(), keys.owned.count()});
  AttentionScores s;
  s.scores = bias.view();  // q.k is 0; -inf where a scheme shows a head one side only
  plan.scores(call.args, files.inputs(), s);
  bias.shape = {n_heads, queries.owned.count(), keys.owned.count()};
  return bias;
}

// One key at 0: a query's position is its distance.
Array distance_bias(const ScoreEncodings& e, const SubjectOptions& o, const std::string& params,
                    const PositionList& distances, Index n_heads, Index head_dim,
                    const std::vector<std::string>& inputs) {
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
  const Subject subject = read_subject(o.subject);
  const ScoreEncodings e = bias_encodings(subject, o.subject);
  PositionList queries = read_positions(o.positions);
  PositionList keys = o.key_positions.empty() ? queries : read_positions(o.key_positions);
  Arrays all;
  if (o.by_distance) {
    if (!o.key_positions.empty()) throw UsageError("--by-distance has no --key-positions");
    all.emplace("bias",
                distance_bias(e, o.subject, o.params, queries, o.heads, o.head_dim, o.inputs));
  } else {
    all.emplace("bias",
                plain_bias(e, o.subject, o.params, o.inputs, queries, keys, o.heads, o.head_dim));
  }
  write_arrays(o.output, all);
  report_written("posenc.bias/1", o.output.path, all, o.json);
  return kSuccess;
}

}  // namespace posenc::cli
