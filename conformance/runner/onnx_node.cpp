// SPDX-License-Identifier: Apache-2.0
// One node of ONNX's tests against its tensors. RotaryEmbedding:
//   X [batch, heads, tokens, head size], or [batch, tokens, heads * head size] with num_heads
//   cos_cache, sin_cache [positions, rotary / 2] with position_ids [batch, tokens], else
//   [batch, tokens, rotary / 2]; the first rotary_embedding_dim channels turn (0: all)
#include "conformance/runner/onnx_node.h"

#include <algorithm>
#include <cmath>

#include "conformance/runner/onnx_attention.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/rotary/plan.h"

namespace posenc::conformance {
namespace {

std::int64_t attribute(const OnnxNode& node, const std::string& name) {
  const auto found = node.integers.find(name);
  return found == node.integers.end() ? 0 : found->second;
}

const Array* input(const OnnxNode& node, std::size_t i, const Arrays& named) {
  if (i >= node.inputs.size() || node.inputs[i].empty()) return nullptr;
  const auto found = named.find(node.inputs[i]);
  return found == named.end() ? nullptr : &found->second;
}

Heads heads_of_input(Array& x, std::int64_t num_heads) {
  if (x.shape.size() == 4) return heads(x.view(), HeadsLayout::bhtd);
  if (x.shape.size() != 3)
    refuse_field("onnx", "X", "must have 3 or 4 axes", Index(x.shape.size()));
  if (num_heads <= 0 || x.shape[2] % num_heads != 0)
    refuse_field("onnx", "num_heads", "must divide the channels of X", num_heads);
  const Index shape[] = {x.shape[0], x.shape[1], num_heads, x.shape[2] / num_heads};
  return heads(tensor(static_cast<void*>(x.bytes.data()), x.dtype, shape), HeadsLayout::bthd);
}

RotarySpec spec_of(const OnnxNode& node, Index head_dim, Index pairs) {
  RotarySpec spec;
  spec.head_dim = head_dim;
  RotaryBlock block;
  block.pairing = attribute(node, "interleaved") != 0 ? Pairing::interleaved : Pairing::half_split;
  const Index given = attribute(node, "rotary_embedding_dim");
  const Index width = given == 0 ? head_dim : given;
  if (width < 2 || width > head_dim)
    refuse_field("onnx", "rotary_embedding_dim", "must lie within the head size", width);
  if (width % 2 != 0 || pairs != width / 2)
    refuse("onnx", "the caches must have one column a pair", pairs);
  // The caches are given: the frequencies of the block are never used.
  block.spectrum.frequency.assign(static_cast<std::size_t>(pairs), 0.0);
  spec.blocks.push_back(block);
  return spec;
}

void check_rows(const std::vector<Index>& positions, Index rows) {
  for (const Index p : positions)
    if (p < 0 || p >= rows) refuse("onnx", "a position lies outside the cache", p);
}

Array rotated(const OnnxNode& node, const Arrays& named) {
  const Array* x = input(node, 0, named);
  const Array* cos = input(node, 1, named);
  const Array* sin = input(node, 2, named);
  const Array* ids = input(node, 3, named);
  if (x == nullptr || cos == nullptr || sin == nullptr)
    refuse("onnx", "X, cos_cache and sin_cache must be given");
  Array in = *x, out = make_array(x->dtype, x->shape);
  const std::int64_t num_heads = attribute(node, "num_heads");
  const Heads q = heads_of_input(in, num_heads);
  if (cos->shape.empty() || cos->shape != sin->shape)
    refuse("onnx", "cos_cache and sin_cache must have one shape");
  if (cos->shape.size() != (ids != nullptr ? 2u : 3u))
    refuse("onnx", "the caches must have 2 axes with position_ids, 3 without",
           Index(cos->shape.size()));
  const RotaryPlan plan(spec_of(node, q.dim, cos->shape.back()), x->dtype);
  CallerRows rows;
  rows.cos = cos->view();
  rows.sin = sin->view();
  std::vector<Index> positions;
  if (ids != nullptr) {
    positions = ids->integers();
    if (static_cast<Index>(positions.size()) != q.batch * q.tokens)
      refuse_field("onnx", "position_ids", "must be [batch, tokens]", Index(positions.size()));
    check_rows(positions, cos->shape[0]);
    const Index shape[] = {q.batch, q.tokens};
    rows.index =
        posenc::positions(tensor(static_cast<const void*>(positions.data()), DType::i64, shape));
  }
  plan.apply_rows(QK{q, {}}, QK{heads_of_input(out, num_heads), {}}, rows);
  return out;
}

double unit_of(DType dtype) {
  if (dtype == DType::f64) return std::exp2(-52);
  if (dtype == DType::f32) return std::exp2(-23);
  return dtype == DType::f16 ? std::exp2(-10) : std::exp2(-7);
}

double largest(const Array& a) {
  double m = 0;
  for (const double v : a.doubles()) m = std::max(m, std::abs(v));
  return m;
}

Json onnx_json(double v) {
  return std::isfinite(v) ? Json(v) : Json(number_text(v));
}

Json worst_json(const std::string& array, const std::vector<Index>& at, double got, double want,
                double allowed) {
  Json index = Json::array();
  for (const Index i : at) index.push(Json(i));
  return Json::object({{"array", Json(array)},
                       {"index", std::move(index)},
                       {"got", onnx_json(got)},
                       {"want", onnx_json(want)},
                       {"allowed", onnx_json(allowed)}});
}

std::string reason(const std::string& array, double got, double want, double allowed) {
  return array + ": got " + number_text(got) + ", want " + number_text(want) + ", allowed " +
         number_text(allowed);
}

// The peer rounds two products and a sum in the dtype of the tensor, we once: four units in the
// last place of the largest product.
OnnxResult compared(const Array& got, const Array& want, double allowed) {
  OnnxResult r;
  if (got.shape != want.shape) return {"fail", "the output has another shape"};
  const std::vector<double> g = got.doubles(), w = want.doubles();
  if (g.empty()) return {"fail", "the check compares nothing"};
  std::size_t at = 0;
  double worst = -1;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double distance = std::abs(g[i] - w[i]);
    const double d = g[i] == w[i] ? 0 : (std::isnan(distance) ? HUGE_VAL : distance);
    if (d > worst) {
      worst = d;
      at = i;
    }
  }
  r.worst = worst_json("output_0", {static_cast<Index>(at)}, g[at], w[at], allowed);
  if (!(worst <= allowed)) r = {"fail", reason("output_0", g[at], w[at], allowed), r.worst};
  return r;
}

OnnxResult turned(const OnnxNode& node, const Arrays& named) {
  const std::string output = node.outputs.empty() ? "" : node.outputs[0];
  const auto want = named.find(output);
  if (want == named.end()) refuse("onnx", "the node's output must be given", output);
  const Array got = rotated(node, named);
  const double table = std::max(largest(*input(node, 1, named)), largest(*input(node, 2, named)));
  return compared(got, want->second,
                  4 * unit_of(got.dtype) * largest(*input(node, 0, named)) * table);
}

OnnxResult attended(const OnnxNode& node, const Arrays& named) {
  const Comparison c = run_onnx_attention(node, named);
  OnnxResult r;
  if (c.compared == 0) return {"fail", "the check compares nothing", Json(nullptr), "attend"};
  const Worst& w = c.worst;
  if (c.failed) r = {"fail", reason(w.array, w.got, w.want, w.allowed)};
  r.worst = worst_json(w.array, w.index, w.got, w.want, w.allowed);
  r.op = "attend";
  return r;
}

}  // namespace

const OnnxNode& only_node(const OnnxModel& model) {
  if (model.nodes.size() != 1)
    throw NotExpressible("the graph has " + std::to_string(model.nodes.size()) + " nodes, not one");
  const OnnxNode& node = model.nodes[0];
  if ((node.op_type != "RotaryEmbedding" && node.op_type != "Attention") ||
      !(node.domain.empty() || node.domain == "ai.onnx"))
    throw NotExpressible("operator " + node.domain + (node.domain.empty() ? "" : ".") +
                         node.op_type + " is not ONNX's RotaryEmbedding or Attention");
  return node;
}

OnnxResult run_onnx_node(const OnnxNode& node, const Arrays& named) {
  const bool attention = node.op_type == "Attention";
  const char* op = attention ? "attend" : "rotate_rows";
  try {
    return attention ? attended(node, named) : turned(node, named);
  } catch (const NotExpressible& e) {
    return {"not_expressible", e.what(), Json(nullptr), op};
  } catch (const std::exception& e) {
    return {"fail", e.what(), Json(nullptr), op};
  }
}

Json onnx_case(const std::string& name, const OnnxResult& r) {
  Json check = Json::object({{"op", Json(r.op)}, {"outcome", Json(r.outcome)}});
  check.set("worst", r.worst);
  return Json::object({{"name", Json(printable(name, std::string::npos))},
                       {"outcome", Json(r.outcome)},
                       {"reason", Json(printable(r.reason, std::string::npos))},
                       {"checks", Json::array({check})}});
}

}  // namespace posenc::conformance
