// SPDX-License-Identifier: Apache-2.0
//   Q, K, V [batch, heads, tokens, channels], or [batch, tokens, heads * channels] with q_num_heads
//   and kv_num_heads; attn_mask broadcast to [batch, heads, queries, keys]: 1 = seen, or added;
//   is_causal counts from the upper left, behind past_key; qk_matmul_output by its mode: q.k scaled,
//   with soft cap, with the mask too, probabilities
#include "conformance/runner/onnx_attention.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "conformance/runner/tensors.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

constexpr const char* kIn[] = {
    "Q", "K", "V", "attn_mask", "past_key", "past_value", "nonpad_kv_seqlen"};
constexpr const char* kOut[] = {"Y", "present_key", "present_value", "qk_matmul_output"};

std::string name_in(const std::vector<std::string>& names, std::size_t i) {
  return i < names.size() ? names[i] : std::string();
}

std::int64_t integer(const OnnxNode& node, const char* name, std::int64_t fallback) {
  const auto found = node.integers.find(name);
  return found == node.integers.end() ? fallback : found->second;
}

const Array& tensor_named(const Arrays& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  if (found == tensors.end()) refuse("onnx", "a tensor of the node must be given", name);
  return found->second;
}

// Letters of Q, K, V and Y, and the channels of a head where heads are merged.
struct Layout {
  std::string letters = "bhtd";
  Index q_dim = 0, v_dim = 0;
};

Layout layout_of(const OnnxNode& node, const Arrays& tensors) {
  Layout l;
  const Array& q = tensor_named(tensors, name_in(node.inputs, 0));
  const Array& v = tensor_named(tensors, name_in(node.inputs, 2));
  if (q.shape.size() == 4) return l;
  const std::int64_t heads = integer(node, "q_num_heads", 0);
  const std::int64_t keys = integer(node, "kv_num_heads", 0);
  if (q.shape.size() != 3 || v.shape.size() != 3 || heads <= 0 || keys <= 0 ||
      q.shape[2] % heads != 0 || v.shape[2] % keys != 0)
    refuse_field("onnx", "Q",
                 "must have 4 axes, or 3 with q_num_heads and kv_num_heads dividing channels",
                 static_cast<Index>(q.shape.size()));
  return {"bt(hd)", q.shape[2] / heads, v.shape[2] / keys};
}

// What is cached stands in front of what is new, so all but the tokens must agree.
void check_cached(const Array& now, const Array& before, const std::string& letters, Index dim,
                  const char* cached, const char* added) {
  const Axes axes(now.shape, letters, {{'d', dim}});
  const std::vector<Index> want{axes['b'].size, axes['h'].size, 0, axes['d'].size};
  if (before.shape.size() != 4)
    refuse_field("onnx", cached, "must have 4 axes", Index(before.shape.size()));
  for (const std::size_t i : {0u, 1u, 3u})
    if (before.shape[i] != want[i])
      refuse_field("onnx", cached,
                   std::string("must have the batch, heads and head size of ") + added + ", " +
                       std::to_string(want[i]) + " on axis " + std::to_string(i),
                   before.shape[i]);
}

// What goes in besides q, k, v: the mask, what is cached before, how many keys are real.
void add_inputs(const OnnxNode& node, const Arrays& tensors, const Layout& layout, Json& in,
                Json& axes, Json& call) {
  const std::string mask = name_in(node.inputs, 3), past = name_in(node.inputs, 4);
  const std::string length = name_in(node.inputs, 6);
  const bool causal = integer(node, "is_causal", 0) != 0;
  std::string part;
  if (!mask.empty()) {
    const Array& m = tensor_named(tensors, mask);
    const std::size_t rank = m.shape.size();
    if (rank < 2 || rank > 4)
      refuse_field("onnx", "attn_mask", "must have 2 to 4 axes", Index(rank));
    in.set(m.dtype == DType::u8 ? "visible" : "bias", Json(mask));
    axes.set(mask, Json(std::string("bhqk").substr(4 - rank)));
    // With padded keys the mask ends where the longest row does.
    if (!length.empty() && layout.q_dim == 0)
      part = "[:, :, 0:" + std::to_string(m.shape.back()) + "]";
  }
  const auto keys = [&](const char* ours, std::size_t i, std::size_t cached) {
    const std::string now = name_in(node.inputs, i) + part;
    axes.set(now, Json(layout.letters));
    if (past.empty()) return in.set(ours, Json(now));
    const std::string before = name_in(node.inputs, cached);
    check_cached(tensor_named(tensors, name_in(node.inputs, i)), tensor_named(tensors, before),
                 layout.letters, i == 1 ? layout.q_dim : layout.v_dim, kIn[cached], kIn[i]);
    axes.set(before, Json("bhtd"));
    in.set(ours, Json::array({Json(before), Json(now)}));
  };
  keys("k", 1, 4);
  keys("v", 2, 5);
  if (!length.empty()) in.set("key_length", Json(length));
  if (causal) call.set("causal", Json(true));
  if (causal && !past.empty())
    call.set("query_offset", Json(tensor_named(tensors, past).shape.at(2)));
}

std::vector<double> by_head(const Array& a, const std::string& letters, Index dim) {
  const Axes axes(a.shape, letters, {{'d', dim}});
  const std::vector<double> all = a.doubles();
  std::vector<double> out;
  for (const Index i : axes.walk("bhtd")) out.push_back(all[static_cast<std::size_t>(i)]);
  return out;
}

// present = past, then what is new, along the tokens.
void expect_present(Check& check, const Array& past, const std::vector<double>& now,
                    const std::string& out) {
  const Slice want = slice(check.in_case, out);
  const std::vector<double> before = past.doubles();
  if (past.shape.size() != 4) refuse("onnx", "past and present must have 4 axes", out);
  const auto rows = static_cast<std::size_t>(past.shape[0] * past.shape[1]);
  if (rows == 0 || now.size() % rows != 0) refuse("onnx", "past and new keys must agree", out);
  const std::size_t n = before.size() / rows, m = now.size() / rows;
  std::vector<double> all;
  for (std::size_t r = 0; r < rows; ++r) {
    all.insert(all.end(), before.begin() + static_cast<std::ptrdiff_t>(r * n),
               before.begin() + static_cast<std::ptrdiff_t>((r + 1) * n));
    all.insert(all.end(), now.begin() + static_cast<std::ptrdiff_t>(r * m),
               now.begin() + static_cast<std::ptrdiff_t>((r + 1) * m));
  }
  check.expect(want, all);
}

double onnx_unit(DType dtype) {
  if (dtype == DType::f64) return std::exp2(-52);
  if (dtype == DType::f32) return std::exp2(-23);
  return dtype == DType::f16 ? std::exp2(-10) : std::exp2(-7);
}

// The peer works in the dtype of its tensors: four units in the last place of the largest number.
double allowed(const Array& a) {
  double largest = 1;
  for (const double v : a.doubles())
    if (std::isfinite(v)) largest = std::max(largest, std::abs(v));
  return 4 * onnx_unit(a.dtype) * largest;
}

// A name of a graph is any bytes, and one such as "K[0]" would be read as a part of an array: node and
// tensors by the names that ONNX gives them.
std::pair<OnnxNode, Arrays> in_our_names(const OnnxNode& given, const Arrays& tensors) {
  OnnxNode node = given;
  Arrays named;
  const auto rename = [&](std::vector<std::string>& names, std::span<const char* const> ours) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) continue;
      named[ours[i]] = tensor_named(tensors, names[i]);
      names[i] = ours[i];
    }
  };
  rename(node.inputs, kIn);
  rename(node.outputs, kOut);
  return {std::move(node), std::move(named)};
}

}  // namespace

Json onnx_attention_check(const OnnxNode& node, const Arrays& tensors) {
  const Layout layout = layout_of(node, tensors);
  const std::string q = name_in(node.inputs, 0), y = name_in(node.outputs, 0);
  Json in = Json::object({{"q", Json(q)}}), call = Json::object(), out = Json::object();
  Json axes = Json::object({{q, Json(layout.letters)}, {y, Json(layout.letters)}});
  add_inputs(node, tensors, layout, in, axes, call);
  const auto number = [&](const char* name, bool zero_counts) {
    const auto found = node.floats.find(name);
    if (found != node.floats.end() && (zero_counts || found->second != 0))
      call.set(name, Json(static_cast<double>(found->second)));
  };
  number("scale", true);  // 0: the mask alone
  number("softcap", false);
  out.set("out", Json(y));
  const std::string scores = name_in(node.outputs, 3);
  const std::int64_t mode = integer(node, "qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3) refuse_field("onnx", "qk_matmul_output_mode", "must be 0 to 3", mode);
  const char* modes[] = {"content", "capped", "scores", "probabilities"};
  if (!scores.empty()) out.set(modes[mode], Json(scores));
  Json check = Json::object({{"op", Json("attend")},
                             {"axes", std::move(axes)},
                             {"call", std::move(call)},
                             {"in", std::move(in)},
                             {"out", std::move(out)}});
  if (!scores.empty()) check.set("compare_hidden", Json(true));
  if (layout.q_dim != 0) check.set("head_dim", Json(layout.q_dim));
  if (layout.v_dim != layout.q_dim) check.set("value_dim", Json(layout.v_dim));
  return check;
}

Comparison run_onnx_attention(const OnnxNode& given, const Arrays& given_tensors) {
  if (given.inputs.size() > std::size(kIn) || given.outputs.size() > std::size(kOut))
    throw NotExpressible("the node has more inputs or outputs than opset 24 knows");
  const auto [node, tensors] = in_our_names(given, given_tensors);
  Json names = Json::object(), limits = Json::object();
  for (const auto& [name, a] : tensors) names.set(name, Json(name));
  for (const std::string& name : node.outputs)
    if (!name.empty())
      limits.set(name, Json::object({{"abs", Json(allowed(tensor_named(tensors, name)))}}));
  const Json json = Json::object({{"name", Json("onnx")},
                                  {"inputs", std::move(names)},
                                  {"tolerance", Json::object({{"arrays", std::move(limits)}})}});
  Suite suite;
  suite.arrays = tensors;
  const Case c{suite, json, "onnx"};
  Check check(c, onnx_attention_check(node, tensors));
  run_attend(check);
  const Layout layout = layout_of(node, tensors);
  for (const std::size_t i : {1u, 2u}) {
    const std::string present = name_in(node.outputs, i), past = name_in(node.inputs, i + 3);
    if (present.empty()) continue;
    const Array& now = tensor_named(tensors, name_in(node.inputs, i));
    Array none;
    none.dtype = now.dtype;
    none.shape = tensor_named(tensors, present).shape;
    if (none.shape.size() != 4) refuse_field("onnx", "present", "must have 4 axes", present);
    none.shape[2] = 0;
    expect_present(check, past.empty() ? none : tensor_named(tensors, past),
                   by_head(now, layout.letters, i == 1 ? layout.q_dim : layout.v_dim), present);
  }
  if (!check.failure.empty()) check.comparison.failed = true;
  return std::move(check.comparison);
}

}  // namespace posenc::conformance
