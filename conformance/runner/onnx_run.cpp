// SPDX-License-Identifier: Apache-2.0
// Node tests of ONNX's Attention and RotaryEmbedding (opset 23), from model.onnx and
// test_data_set_*/*.pb. RotaryEmbedding:
//   X [batch, heads, tokens, head size], or [batch, tokens, heads * head size] with num_heads
//   cos_cache, sin_cache [positions, rotary / 2] with position_ids [batch, tokens], else
//   [batch, tokens, rotary / 2]; the first rotary_embedding_dim channels turn (0: all)
#include <algorithm>
#include <cmath>
#include <regex>

#include "conformance/runner/onnx_attention.h"
#include "conformance/runner/runner.h"
#include "conformance/runner/suite.h"
#include "posenc/core/error.h"
#include "posenc/rotary/plan.h"

namespace posenc::conformance {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLargest = std::size_t{1} << 30;

struct DataSet {
  fs::path model, data;
};

std::vector<fs::path> sorted_entries(const fs::path& dir) {
  std::vector<fs::path> entries;
  for (const auto& entry : fs::directory_iterator(dir)) entries.push_back(entry.path());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void collect(const fs::path& dir, std::vector<DataSet>& sets) {
  const fs::path model = dir / "model.onnx";
  if (!fs::exists(model)) return;
  for (const fs::path& entry : sorted_entries(dir))
    if (fs::is_directory(entry) && entry.filename().string().rfind("test_data_set_", 0) == 0)
      sets.push_back({model, entry});
}

std::vector<DataSet> data_sets(const fs::path& dir) {
  if (!fs::is_directory(dir)) throw FormatError(dir.string(), "", "is not a folder");
  std::vector<DataSet> sets;
  collect(dir, sets);
  if (sets.empty())
    for (const fs::path& entry : sorted_entries(dir))
      if (fs::is_directory(entry)) collect(entry, sets);
  if (sets.empty())
    throw FormatError(dir.string(), "", "holds no model.onnx with test_data_set_* beside it");
  return sets;
}

Array read_tensor(const fs::path& file) {
  return parse_onnx_tensor(read_file(file, kLargest), file.string());
}

// The tensors of a data set by the names of the graph.
std::map<std::string, Array> inputs_of(const OnnxModel& model, const fs::path& data) {
  std::map<std::string, Array> named = model.initializers;
  for (std::size_t i = 0; i < model.inputs.size(); ++i)
    named[model.inputs[i]] = read_tensor(data / ("input_" + std::to_string(i) + ".pb"));
  return named;
}

std::int64_t attribute(const OnnxNode& node, const std::string& name) {
  const auto found = node.integers.find(name);
  return found == node.integers.end() ? 0 : found->second;
}

const OnnxNode& node_of(const OnnxModel& model) {
  if (model.nodes.size() != 1)
    throw NotExpressible("the graph has " + std::to_string(model.nodes.size()) + " nodes, not one");
  const OnnxNode& node = model.nodes[0];
  if ((node.op_type != "RotaryEmbedding" && node.op_type != "Attention") ||
      !(node.domain.empty() || node.domain == "ai.onnx"))
    throw NotExpressible("operator " + node.domain + (node.domain.empty() ? "" : ".") +
                         node.op_type + " is not ONNX's RotaryEmbedding or Attention");
  return node;
}

const Array* input(const OnnxNode& node, std::size_t i, const std::map<std::string, Array>& named) {
  if (i >= node.inputs.size() || node.inputs[i].empty()) return nullptr;
  const auto found = named.find(node.inputs[i]);
  return found == named.end() ? nullptr : &found->second;
}

Heads heads_of_input(Array& x, std::int64_t num_heads) {
  if (x.shape.size() == 4) return heads(x.view(), HeadsLayout::bhtd);
  if (x.shape.size() != 3) refuse("onnx", "X must have 3 or 4 axes", Index(x.shape.size()));
  if (num_heads <= 0 || x.shape[2] % num_heads != 0)
    refuse("onnx", "num_heads must divide the channels of X", num_heads);
  const Index shape[] = {x.shape[0], x.shape[1], num_heads, x.shape[2] / num_heads};
  return heads(tensor(static_cast<void*>(x.bytes.data()), x.dtype, shape), HeadsLayout::bthd);
}

RotarySpec spec_of(const OnnxNode& node, Index head_dim, Index pairs) {
  RotarySpec spec;
  spec.head_dim = head_dim;
  RotaryBlock block;
  block.pairing = attribute(node, "interleaved") != 0 ? Pairing::interleaved : Pairing::half_split;
  const Index width = attribute(node, "rotary_embedding_dim");
  if (2 * pairs != (width == 0 ? head_dim : width))
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

Array rotated(const OnnxNode& node, const std::map<std::string, Array>& named) {
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
      refuse("onnx", "position_ids must be [batch, tokens]", Index(positions.size()));
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

struct Result {
  std::string outcome = "pass", reason = {};
  Json worst = Json(nullptr);
  std::string op = "rotate_rows";
};

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
Result compared(const Array& got, const Array& want, double allowed) {
  Result r;
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

// Files of the outputs that the node makes, in its order.
void add_outputs(const OnnxNode& node, const fs::path& data, std::map<std::string, Array>& named) {
  int i = 0;
  for (const std::string& name : node.outputs)
    if (!name.empty()) named[name] = read_tensor(data / ("output_" + std::to_string(i++) + ".pb"));
}

Result attended(const OnnxNode& node, const DataSet& set, std::map<std::string, Array> named) {
  add_outputs(node, set.data, named);
  const Comparison c = run_onnx_attention(node, named);
  Result r;
  if (c.compared == 0) return {"fail", "the check compares nothing", Json(nullptr), "attend"};
  const Worst& w = c.worst;
  if (c.failed) r = {"fail", reason(w.array, w.got, w.want, w.allowed)};
  r.worst = worst_json(w.array, w.index, w.got, w.want, w.allowed);
  r.op = "attend";
  return r;
}

Result run_set(const DataSet& set) {
  try {
    const OnnxModel model = parse_onnx_model(read_file(set.model, kLargest), set.model.string());
    const OnnxNode& node = node_of(model);
    const auto named = inputs_of(model, set.data);
    if (node.op_type == "Attention") return attended(node, set, named);
    const Array want = read_tensor(set.data / "output_0.pb");
    const Array got = rotated(node, named);
    const double table = std::max(largest(*input(node, 1, named)), largest(*input(node, 2, named)));
    return compared(got, want, 4 * unit_of(got.dtype) * largest(*input(node, 0, named)) * table);
  } catch (const NotExpressible& e) {
    return {"not_expressible", e.what()};
  } catch (const std::exception& e) {
    return {"fail", e.what()};
  }
}

}  // namespace

Json run_onnx(const fs::path& dir, const Options& options) {
  const std::vector<DataSet> sets = data_sets(dir);
  const std::string suite = fs::absolute(dir).lexically_normal().filename().string();
  const std::regex filter(options.filter);
  std::int64_t passed = 0, failed = 0, not_expressible = 0, done = 0;
  Json cases = Json::array();
  for (const DataSet& set : sets) {
    const std::string name =
        set.data.parent_path().filename().string() + "/" + set.data.filename().string();
    ++done;
    if (!options.filter.empty() && !std::regex_search(suite + "/" + name, filter)) continue;
    const Result r = run_set(set);
    passed += r.outcome == "pass" ? 1 : 0;
    failed += r.outcome == "fail" ? 1 : 0;
    not_expressible += r.outcome == "not_expressible" ? 1 : 0;
    Json check = Json::object({{"op", Json(r.op)}, {"outcome", Json(r.outcome)}});
    check.set("worst", r.worst);
    cases.push(Json::object({{"name", Json(name)},
                             {"outcome", Json(r.outcome)},
                             {"reason", Json(r.reason)},
                             {"checks", Json::array({check})}}));
    if (options.progress)
      options.progress(suite, name, done, static_cast<std::int64_t>(sets.size()));
  }
  return Json::object(
      {{"schema", Json("posenc.selftest/1")},
       {"suites", Json::array({Json::object({{"suite", Json(suite.empty() ? "onnx" : suite)},
                                             {"passed", Json(passed)},
                                             {"failed", Json(failed)},
                                             {"not_expressible", Json(not_expressible)},
                                             {"cases", cases}})})}});
}

}  // namespace posenc::conformance
