// SPDX-License-Identifier: Apache-2.0
// posenc emit onnx: what a layer or a SCHEME does as one node of ONNX's operator set 23.
//   RotaryEmbedding  y = x rotated by row position_ids of cos_cache and sin_cache
//   Attention        Y = softmax(scale Q K^T + attn_mask) V
#include <fmt/format.h>

#include <memory>

#include "attend_call.h"
#include "call_words.h"
#include "notes.h"
#include "onnx_file.h"
#include "posenc/phase.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

struct EmitOptions {
  std::string kind;    // onnx
  AttendOptions call;  // its subject, positions, masks, offset, scale and learned arrays
  Index heads = 0, head_dim = 0;
  std::string dtype;  // "": f32
};

constexpr Index kOperatorSet = 23;

DType dtype_of(const std::string& word) {
  for (const DType t : {DType::f32, DType::f16, DType::bf16})
    if (dtype_name(t) == word || (word.empty() && t == DType::f32)) return t;
  throw UsageError("--dtype must be one of f32, f16, bf16, got \"" + word + "\"");
}

std::string title_of(const Subject& s, const SubjectOptions& o) {
  return s.is_model() ? fmt::format("{}, layer {}", s.title, chosen_layer(*s.model, o).index)
                      : s.title;
}

// The block that the operator can say, or the rule that refuses it.
const RotaryBlock& sayable_block(const std::string& title, const RotarySpec& spec) {
  const auto refuse_if = [&](bool is, const std::string& what) {
    if (is) throw InputError(fmt::format("{}: RotaryEmbedding of ONNX {}", title, what));
  };
  refuse_if(spec.blocks.empty(), "rotates, and this rotates nothing");
  refuse_if(spec.blocks.size() > 1,
            fmt::format("has one block of channels, and this has {}", spec.blocks.size()));
  const RotaryBlock& b = spec.blocks.front();
  const Spectrum& s = b.spectrum;
  refuse_if(b.offset != 0,
            fmt::format("rotates the first channels of a head, and this rotates from channel {} on",
                        b.offset));
  refuse_if(s.axes != 1, fmt::format("has one position a token, and this reads {} axes", s.axes));
  refuse_if(s.heads != 1, fmt::format("has one table for all heads, and this has {}", s.heads));
  refuse_if(!b.log2_decay.empty(),
            "treats q and k alike, and xPos makes one grow where the other shrinks");
  refuse_if(b.output_order != OutputOrder::in_place,
            "leaves pairs where they are, and this moves them (output_order even_then_odd)");
  return b;
}

// Rows 0 .. N - 1 of a cache: N.
Index cache_rows(const EmitOptions& o, const Subject& s) {
  if (o.call.positions.empty()) {
    if (!s.is_model()) throw UsageError("emit needs --positions 0:N, the rows of the caches");
    if (s.model->context.value > 0) return s.model->context.value;
    throw UsageError(
        "the model states no context: state the rows of the caches with --positions 0:N");
  }
  const PositionList list = read_positions(o.call.positions);
  const Positions p = list;
  const Index n = list.owned.count();
  for (Index i = 0; i < n; ++i)
    if (p.axes != 1 || p.batch != 1 || position_at(p, 0, 0, i) != static_cast<double>(i))
      throw UsageError(
          "--positions must be 0:N: position_ids of the operator count the rows of its caches");
  if (n < 1) throw UsageError("--positions must be 0:N with one row or more");
  return n;
}

// What the layer does beside the rotation, which the node does not.
void say_what_is_left(const Subject& s, const SubjectOptions& o) {
  if (!s.is_model()) return;
  for (const Requirement& r : must_honour(chosen_layer(*s.model, o)))
    note(fmt::format("not in this node: {}\n", r.text));
}

OnnxNode rotary_node(const EmitOptions& o, const Subject& s) {
  const SubjectOptions& words = o.call.subject;
  if (o.heads > 0 || o.head_dim > 0 || !o.call.masks.empty() || !o.call.key_positions.empty() ||
      !o.call.offset.empty() || o.call.scale || !o.call.params.empty() ||
      !o.call.token_types.empty())
    throw UsageError(
        "--heads, --head-dim, --key-positions, --mask, --token-types, --offset, --scale and "
        "--params are of what acts in the score, and this rotates");
  const DType dtype = dtype_of(o.dtype);
  const RotarySpec spec = rotary_of(s, words);
  const RotaryBlock& b = sayable_block(s.title, spec);
  const Index rows = cache_rows(o, s);
  if (rows > (Index{1} << 31) / (b.width() * size_of(dtype)))
    throw InputError(fmt::format("an ONNX file has no room for caches of {} rows", rows));
  const OwnedPositions positions = arange(0, rows);
  check_lengths(words, spec, positions);
  Array cos = make_array(dtype, {rows, b.pairs()}), sin = cos;
  phase_rows(b.spectrum, positions, cos.view(), sin.view());
  const auto element = static_cast<std::size_t>(size_of(dtype));
  if (b.direction < 0)  // sin(-x) = -sin(x): the sign is the highest bit
    for (std::size_t i = element - 1; i < sin.bytes.size(); i += element)
      sin.bytes[i] ^= std::byte{0x80};
  OnnxNode n{"RotaryEmbedding", title_of(s, words)};
  n.attributes.emplace_back("interleaved", Index{b.pairing == Pairing::interleaved});
  if (b.width() != spec.head_dim) n.attributes.emplace_back("rotary_embedding_dim", b.width());
  n.inputs = {"X", "cos_cache", "sin_cache", "position_ids"};
  n.given = {{"X", dtype, {"batch", "heads", "tokens", spec.head_dim}},
             {"position_ids", DType::i64, {"batch", "tokens"}}};
  n.output = {"Y", dtype, n.given[0].shape};
  n.held.emplace_back("cos_cache", std::move(cos));
  n.held.emplace_back("sin_cache", std::move(sin));
  say_what_is_left(s, words);
  return n;
}

// A call with zeros for q, k and v: its scores are what is added to q.k, -inf where nothing is seen.
AttendCall call_of_zeros(const EmitOptions& o, const ScoreEncodings& e) {
  if (o.heads < 1 || o.head_dim < 1 || o.call.positions.empty())
    throw UsageError("what acts in the score needs --heads N, --head-dim N and --positions P");
  const Index queries = read_positions(o.call.positions).owned.count();
  const Index keys =
      o.call.key_positions.empty() ? queries : read_positions(o.call.key_positions).owned.count();
  if (keys > 0 && queries > (Index{1} << 29) / o.heads / keys)
    throw InputError(fmt::format("an ONNX file has no room for {} heads of {} queries and {} keys",
                                 o.heads, queries, keys));
  AttendCall c;
  for (const auto& [name, tokens] : {std::pair{"q", queries}, {"k", keys}, {"v", keys}})
    c.arrays.emplace(name, make_array(DType::f64, {tokens, o.heads, o.head_dim}));
  read_call(c, o.call, e);
  return c;
}

// What the operator has no input or attribute for.
void check_sayable(const std::string& title, const AttendCall& c, const LoweredAttention& lowered) {
  const auto refuse_if = [&](bool is, const std::string& what) {
    if (is) throw InputError(fmt::format("{}: Attention of ONNX {}", title, what));
  };
  const CallRequests& r = lowered.requests();
  refuse_if(lowered.reads_content(),
            "accepts a bias, but the terms of this scheme depend on the numbers in q, k or v");
  refuse_if(c.layer && c.layer->rotary != nullptr, "does not rotate, and this layer does");
  refuse_if(!c.args.prepare.empty() || !r.prepare.empty(),
            "does not normalise q and k, and this layer does");
  refuse_if(!r.head_scale.empty(), "has one scale for all heads, and here each has its own");
  refuse_if(!c.args.query_factor.empty(), "has one scale for all queries, and here each has one");
  refuse_if(r.normalisation != Normalisation::softmax,
            fmt::format("has a softmax, and this layer has {}", enum_text(r.normalisation)));
  refuse_if(!c.args.sink.empty(), "has no sinks, and this layer has them");
  refuse_if(c.args.softcap != 0,
            "caps the score before or after the bias by its version; this layer has a soft cap");
}

OnnxNode attention_node(const EmitOptions& o, const Subject& s, const ScoreEncodings& e) {
  if (!o.dtype.empty() && o.dtype != "f32")
    throw UsageError("--dtype of what acts in the score is f32, got \"" + o.dtype + "\"");
  const AttendCall c = call_of_zeros(o, e);
  const AttentionPlan plan = plan_of_call(c, o.call, e);
  for (const Input& input : plan.inputs())
    if (!input.optional)
      throw InputError(fmt::format(
          "{}: Attention of ONNX has one bias for all calls, and this scheme reads {} of each call",
          s.title, input.name));
  NamedFiles files;
  files.read_parameters(plan.parameters(), o.call.params, o.call.subject.start, e);
  const LoweredAttention lowered =
      plan.lower(files.parameters(), distance_ranges(c.args.query_positions, c.args.key_positions));
  check_sayable(s.title, c, lowered);
  Array bias = make_array(DType::f32, {1, o.heads, c.args.q.tokens, c.args.k.tokens});
  AttentionScores scores;
  scores.scores = bias.view();
  lowered.scores(c.args, {}, scores);
  OnnxNode n{"Attention", title_of(s, o.call.subject)};
  n.attributes.emplace_back("scale", static_cast<float>(lowered.scale()));
  n.inputs = {"Q", "K", "V", "attn_mask"};
  const Index queries = c.args.q.tokens, keys = c.args.k.tokens;
  n.given = {{"Q", DType::f32, {"batch", o.heads, queries, o.head_dim}},
             {"K", DType::f32, {"batch", "key_heads", keys, o.head_dim}},
             {"V", DType::f32, {"batch", "key_heads", keys, "value_dim"}}};
  n.output = {"Y", DType::f32, {"batch", o.heads, queries, "value_dim"}};
  n.held.emplace_back("attn_mask", std::move(bias));
  return n;
}

// The node of a SCHEME by where it acts; of a layer, rotation or what is added to its score.
OnnxNode node_of(const EmitOptions& o, const Subject& s) {
  const SubjectOptions& words = o.call.subject;
  if (s.encoding) {
    if (!is_relative(s.encoding->scheme)) return rotary_node(o, s);
  } else {
    require_readable(*s.model);
    const LayerSpec& layer = chosen_layer(*s.model, words);
    if (layer.rotary || !layer.has_scheme()) return rotary_node(o, s);
  }
  return attention_node(o, s, score_encodings(s, words, {}));
}

Json axes_json(const OnnxNode::Value& v) {
  Json axes = Json::array();
  for (const auto& axis : v.shape) std::visit([&](const auto& a) { axes.push(Json(a)); }, axis);
  return Json::object({{"dtype", dtype_name(v.dtype)}, {"shape", axes}});
}

Json report(const OnnxNode& n, const std::string& path) {
  Json attributes = Json::object(), inputs = Json::object(), held = Json::object();
  for (const auto& [name, value] : n.attributes)
    std::visit([&, key = name](const auto v) { attributes.set(key, Json(v)); }, value);
  for (const OnnxNode::Value& v : n.given) inputs.set(v.name, axes_json(v));
  for (const auto& [name, a] : n.held)
    held.set(name, axes_json({name, a.dtype, {a.shape.begin(), a.shape.end()}}));
  return Json::object({{"schema", "posenc.emit/1"},
                       {"output", path},
                       {"operator", n.op_type},
                       {"operator_set", kOperatorSet},
                       {"attributes", attributes},
                       {"inputs", inputs},
                       {"initializers", held},
                       {"outputs", Json::object({{n.output.name, axes_json(n.output)}})}});
}

Report emit(const EmitOptions& o, const Request& r) {
  if (!is_stdout(r.path) && std::filesystem::path(r.path).extension() != ".onnx")
    throw UsageError("the output must be .onnx or -, got \"" + r.path + "\"");
  const OnnxNode node = node_of(o, read_subject(o.call.subject));
  Report done{.bytes = onnx_bytes(node, kOperatorSet)};
  if (r.json) done.text = report(node, r.path).dump(2) + "\n";
  done.written = fmt::format("{}: one {} of operator set {}\n", r.path, node.op_type, kOperatorSet);
  return done;
}

Verb::Run declare_emit(Words& w) {
  auto o = std::make_shared<EmitOptions>();
  w.text("KIND", o->kind, "",
         "onnx: a model of one node of operator set 23: RotaryEmbedding with exact cos and sin,\n"
         "or Attention with the score terms of a scheme as its bias")
      .required()
      .one_of({"onnx"});
  w.subject(o->call.subject, Takes::model_or_scheme);
  add_places(w, o->call,
             "of a rotation: 0:N, the rows of its caches (default of a MODEL: its context);\nof "
             "score terms: positions of the queries, A:B[:STEP], a list or an .npy");
  w.whole("--heads", o->heads, 1, 65536, "N", "of score terms: number of attention heads");
  w.whole("--head-dim", o->head_dim, 1, 65536, "N", "of score terms: channels of a head");
  add_params(w, o->call.params);
  w.text("--dtype", o->dtype, "T", "dtype of the tensors: f32 (default), f16 or bf16");
  w.text("-o,--output", w.out.path, "F", "F.onnx, or - for stdout; no partial file is left")
      .required()
      .is_output = true;
  w.json();
  return [o](const Request& r) { return emit(*o, r); };
}

}  // namespace

const Verb emit_verb{
    "emit", "write a rotation or score terms as an ONNX model", &declare_emit,
    "Examples:\n  posenc emit onnx models/llama --positions 0:8192 -o rotary.onnx\n"
    "  posenc emit onnx \"rope head_dim=128 pairing=half_split + yarn factor=4 "
    "original_context=4096\" \\\n    --context 16384 --positions 0:16384 --dtype f16 -o "
    "rotary.onnx\n"
    "  posenc emit onnx \"t5 bidirectional=false\" --params t5.safetensors --heads 8 --head-dim "
    "64 \\\n    --positions 0:512 --mask causal -o attention.onnx"};

}  // namespace posenc::report
