// SPDX-License-Identifier: Apache-2.0
// regions: tokens of an image beside those of a text, as VisualBERT embeds them: a projection of
// the region, the mean position of the words that it is aligned to, its type, then the norm.
#include "conformance/runner/check.h"
#include "conformance/runner/tensors.h"
#include "posenc/absolute/aligned_rows.h"
#include "posenc/absolute/embed.h"
#include "posenc/absolute/input_term.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

struct Rows {
  std::vector<double> value;
  std::vector<Index> shape;
  TensorView view() { return tensor(static_cast<void*>(value.data()), DType::f64, shape); }
};
Rows rows_in(const Check& check, std::string_view ours) {
  const Slice s = check.input(ours);
  return {s.values(), s.shape};
}

// features [b, t, in] through weight [out, in] and bias [out].
Rows projected(const Check& check) {
  Rows features = rows_in(check, "features"), weight = rows_in(check, "weight");
  const Rows bias = rows_in(check, "bias");
  if (features.shape.size() != 3 || weight.shape.size() != 2)
    refuse_field("case", "features", "must be [b, t, in] and weight [out, in]");
  LoweredInput lowered;
  InputTerm t;
  t.rows = features.view();
  t.source_width = features.shape[2];
  t.width = weight.shape[0];
  t.layers = {lowered.dense(weight.value, bias.value, t.width, Activation::identity)};
  lowered.terms.push_back(t);
  Rows out{{}, {features.shape[0], features.shape[1], t.width}};
  out.value.resize(static_cast<std::size_t>(out.shape[0] * out.shape[1] * out.shape[2]));
  apply_input({}, {}, lowered, out.view());
  return out;
}

}  // namespace

void run_regions(Check& check) {
  Rows region = projected(check), stands = region;
  Rows positions = rows_in(check, "position");
  const Slice a = check.input("alignment");
  std::vector<Index> entries;
  for (const double x : a.values()) entries.push_back(static_cast<Index>(x));
  aligned_rows(positions.view(), tensor(static_cast<void*>(entries.data()), DType::i64, a.shape),
               stands.view());
  Rows type = rows_in(check, "type"), own = rows_in(check, "own_position");
  Rows gamma = rows_in(check, "gamma"), beta = rows_in(check, "beta");
  const Index tokens = region.shape[1];
  const std::vector<Index> types(static_cast<std::size_t>(tokens), check.integer("type_id", 1));
  const std::vector<Index> zeros(static_cast<std::size_t>(tokens), 0);
  std::vector<EmbedPart> parts(4);
  parts[0].rows = region.view();
  parts[1].rows = stands.view();
  parts[2].table = type.view();
  parts[2].ids = tensor(types.data(), {tokens});
  parts[3].table = own.view();
  parts[3].ids = tensor(zeros.data(), {tokens});
  Rows out = region;
  embed(parts, EmbedNorm{gamma.view(), beta.view(), check.number("epsilon", 1e-12)}, out.view());
  check.expect("out", out.value, out.shape);
}

}  // namespace posenc::conformance
