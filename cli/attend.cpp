// SPDX-License-Identifier: Apache-2.0
// posenc attend: attention of queries, keys and values from files, with every term of a SCHEME or a
// model's layer, its gradients and its scores.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <map>

#include "attention_call.h"
#include "posenc/core/heads.h"
#include "streams.h"
#include "verbs.h"

namespace posenc::cli {
namespace {

HeadsLayout layout_of(const Array& a, const std::string& order, const std::string& file) {
  const std::string word = !order.empty() ? order : a.shape.size() == 3 ? "thd" : "";
  if (word != "thd" && word != "bthd" && word != "bhtd")
    throw UsageError(
        word.empty() ? file + " has not three axes: --order bthd or bhtd must say which is which"
                     : "--order must be thd, bthd or bhtd, got \"" + word + "\"");
  if (word.size() != a.shape.size())
    throw InputError(fmt::format("{}: --order {} has {} axes, the array has {}", file, word,
                                 word.size(), a.shape.size()));
  return layout_from_name(word);
}

Index whole(std::string_view text, const std::string& mask) {
  Index n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc() || end != text.data() + text.size() || n < -1)
    throw UsageError(fmt::format("--mask {}: \"{}\" is no whole number", mask, text));
  return n;
}

// Everything that a call reads, kept alive.
struct Call {
  AttentionArgs args;
  std::map<std::string, Array> arrays;
  Array prefix;
  PositionList query_positions, key_positions;
  std::optional<LayerAttention> layer;  // of a model
  HeadsLayout layout = HeadsLayout::thd;
  Array out, log_sum_exp;
  AttentionResult result;

  const Array& read(const std::string& name, const std::string& file) {
    return arrays.emplace(name, read_array(file, name)).first->second;
  }
};

ConstHeads read_heads(Call& c, const char* name, const std::string& file,
                      const std::string& order) {
  const Array& a = c.read(name, file);
  if (!is_float(a.dtype))
    throw InputError(
        fmt::format("{}: must be f64, f32, f16 or bf16, got {}", file, dtype_name(a.dtype)));
  c.layout = layout_of(a, order, file);
  static const double nothing = 0;  // an array without elements has no memory
  ConstHeads h = heads(a.view(), c.layout);
  if (h.data == nullptr) h.data = &nothing;
  return h;
}

ConstTensorView read_integers(Call& c, const std::string& name, const std::string& file) {
  const Array given = read_array(file, name);
  const std::vector<Index> v = given.integers();
  Array a = make_array(DType::i64, given.shape);
  if (!v.empty()) std::memcpy(a.bytes.data(), v.data(), a.bytes.size());
  return std::as_const(c.arrays.emplace(name, std::move(a)).first->second).view();
}

// A file of bytes (0 hides) or of numbers that are added.
void add_mask_file(Call& c, const std::string& file) {
  Array a = read_array(file, "mask");
  const bool real = is_float(a.dtype);
  Mask& m = c.args.mask;
  if (real ? !m.bias.empty() : !m.visible.empty())
    throw UsageError("--mask " + file + ": one file of its kind only");
  if (real) a = as_doubles(a);
  if (!real && a.dtype != DType::u8) {
    Array bytes = make_array(DType::u8, a.shape);
    const std::vector<Index> v = a.integers();
    for (std::size_t i = 0; i < v.size(); ++i) bytes.bytes[i] = std::byte(v[i] != 0 ? 1 : 0);
    a = std::move(bytes);
  }
  const Array& kept =
      c.arrays.emplace(real ? "mask_bias" : "mask_visible", std::move(a)).first->second;
  (real ? m.bias : m.visible) = kept.view();
}

void add_mask(Call& c, const std::string& text) {
  Mask& m = c.args.mask;
  const std::size_t at = text.find('=');
  const std::string word = text.substr(0, at),
                    value = at == std::string::npos ? "" : text.substr(at + 1);
  if (text == "causal") {
    m.causal = true;
  } else if (at != std::string::npos && word == "window") {
    const std::size_t comma = value.find(',');
    if (comma == std::string::npos)
      throw UsageError("--mask window=L,R has two numbers, got \"" + text + "\"");
    m.window_left = whole(std::string_view(value).substr(0, comma), text);
    m.window_right = whole(std::string_view(value).substr(comma + 1), text);
  } else if (at != std::string::npos && word == "prefix") {
    c.prefix = make_array(DType::i64, {1});
    const Index n = whole(value, text);
    std::memcpy(c.prefix.bytes.data(), &n, sizeof n);
    m.prefix = std::as_const(c.prefix).view();
  } else if (at != std::string::npos && word == "chunk") {
    m.chunk = whole(value, text);
  } else if (at != std::string::npos && word == "sinks") {
    m.sink_tokens = whole(value, text);
  } else if (text.find('.') == std::string::npos) {
    throw UsageError(
        "--mask must be causal, window=L,R, prefix=N, chunk=N, sinks=N or a file, got \"" + text +
        "\"");
  } else {
    add_mask_file(c, text);
  }
}

// What a model's layer does; its mask unless --mask says another one.
void read_layer(Call& c, const AttendOptions& o, const ScoreEncodings& e) {
  const LayerSpec& l = *e.layer;
  c.layer = layer_attention(l, c.args.q.tokens, c.args.mask.query_offset,
                            o.with.empty() ? UnreadScheme::refuse : UnreadScheme::caller_adds);
  c.args.prepare = c.layer->stages;
  if (!c.layer->query_factors.empty())
    c.args.query_factor =
        tensor(std::as_const(c.layer->query_factors).data(), {1, c.args.q.tokens});
  if (l.qk_norm && !l.qk_norm->after_rotation)
    say("q and k are taken as they are after this layer's norm\n");
  if (!o.scale && !c.layer->scale)
    say("what multiplies q.k is not known of this model: head_dim^-1/2 is taken (--scale)\n");
  if (!o.softcap) c.args.softcap = c.layer->softcap;
  if (!c.layer->sinks.empty()) {
    c.arrays.emplace("sinks", sinks_of(e, c.args.q.heads));
    c.args.sink = std::as_const(c.arrays.at("sinks")).view();
  }
  if (!o.masks.empty()) return;
  Mask& m = c.args.mask;
  m.window_left = c.layer->window_left;
  m.window_right = c.layer->window_right;
  m.chunk = c.layer->chunk;
}

Index query_offset(const AttendOptions& o, Index queries, Index keys) {
  if (o.offset.empty() || o.offset == "end") return keys - queries;
  if (o.offset == "start") return 0;
  Index n = 0;
  const auto [end, error] = std::from_chars(o.offset.data(), o.offset.data() + o.offset.size(), n);
  if (error != std::errc() || end != o.offset.data() + o.offset.size())
    throw UsageError("--offset must be a whole number, start or end, got \"" + o.offset + "\"");
  return n;
}

void read_masks(Call& c, const AttendOptions& o) {
  for (const std::string& m : o.masks) add_mask(c, m);
  Mask& m = c.args.mask;
  const bool packed = !o.cu_seqlens.empty();
  if (!packed && !o.key_cu_seqlens.empty())
    throw UsageError("--key-cu-seqlens goes with --cu-seqlens");
  if (packed) {
    m.query_cu_seqlens = read_integers(c, "cu_seqlens", o.cu_seqlens);
    m.key_cu_seqlens = o.key_cu_seqlens.empty()
                           ? m.query_cu_seqlens
                           : read_integers(c, "key_cu_seqlens", o.key_cu_seqlens);
  }
  if (!o.documents.empty()) {
    m.query_document = m.key_document = read_integers(c, "documents", o.documents);
    if (c.args.q.tokens != c.args.k.tokens)
      throw InputError("--documents needs as many queries as keys");
  }
  m.query_offset = packed ? 0 : query_offset(o, c.args.q.tokens, c.args.k.tokens);
}

void read_call(Call& c, const AttendOptions& o, const ScoreEncodings& e) {
  c.args.q = read_heads(c, "q", o.q, o.order);
  c.args.k = read_heads(c, "k", o.k, o.order);
  c.args.v = read_heads(c, "v", o.v, o.order);
  c.args.softcap = o.softcap.value_or(0);
  read_masks(c, o);
  if (e.layer != nullptr) read_layer(c, o, e);
  if (!o.cu_seqlens.empty() && o.positions.empty())
    throw UsageError("packed sequences need --positions (and --key-positions where keys differ)");
  c.query_positions =
      positions_or_order(o.positions, c.args.mask.query_offset, c.args.q.tokens, "--positions");
  c.key_positions = positions_or_order(
      o.key_positions.empty() && c.args.q.tokens == c.args.k.tokens ? o.positions : o.key_positions,
      0, c.args.k.tokens, "--key-positions");
  // Text of a rotation with several axes has one list for all of them.
  const Index axes = c.layer && c.layer->rotary ? c.layer->rotary->axes() : 1;
  const auto spread = [&](const PositionList& list) {
    return list.owned.axes == 1 ? spread_over_axes(list, axes) : Positions(list);
  };
  c.args.query_positions = spread(c.query_positions);
  c.args.key_positions = spread(c.key_positions);
  std::vector<Index> shape = c.arrays.at("q").shape;  // channels are the last axis of every order
  shape.back() = c.args.v.dim;
  c.out = make_array(c.args.q.dtype, shape);
  c.log_sum_exp = make_array(DType::f64, {c.args.q.batch, c.args.q.heads, c.args.q.tokens});
  c.result = {heads(c.out.view(), c.layout), c.log_sum_exp.view()};
}

Array& add(Arrays& all, const std::string& name, std::vector<Index> shape) {
  return all.emplace(name, make_array(DType::f64, std::move(shape))).first->second;
}

void add_gradients(const AttendOptions& o, const Call& c, const AttentionPlan& plan,
                   const NamedFiles& files, Arrays& all) {
  Array given = read_array(o.gradient, "grad_out");
  if (given.shape != c.out.shape)
    throw InputError(fmt::format("{}: must have the shape of out, [{}], got [{}]", o.gradient,
                                 fmt::join(c.out.shape, ", "), fmt::join(given.shape, ", ")));
  given = as_doubles(given);
  const auto of_call = [&](const char* name) {
    return heads(add(all, std::string("grad_") + name, c.arrays.at(name).shape).view(), c.layout);
  };
  AttentionGradients g;
  g.q = of_call("q");
  g.k = of_call("k");
  g.v = of_call("v");
  std::vector<NamedGradient> named;
  const auto by_name = [&](std::string_view name, const ConstTensorView& v) {
    Array& a = add(all, "grad_" + std::string(name),
                   std::vector<Index>(v.shape.begin(), v.shape.begin() + v.rank));
    named.push_back({name, a.view()});
  };
  for (const NamedArray& p : files.parameters()) by_name(p.name, p.array);
  for (const NamedArray& i : files.inputs())
    if (i.array.dtype == DType::f64) by_name(i.name, i.array);
  const ConstAttentionResult d(heads(std::as_const(given).view(), c.layout), {});
  plan.backward(c.args, files.inputs(), c.result, d, g, named);
}

// Mass of attention by distance, the mean over all queries: [heads, distances].
void add_locality(const Call& c, const Array& probabilities, Arrays& all) {
  const Positions q = c.query_positions, k = c.key_positions;
  const DistanceRange r = distance_ranges(q, k)[0];
  const Index n = r.max - r.min + 1, heads_count = c.args.q.heads;
  if (n > Index{1} << 24) throw InputError("--locality counts at most 16777216 distances");
  Array& mass = add(all, "locality", {heads_count, n});
  Array distance = make_array(DType::i64, {n});
  for (Index d = 0; d < n; ++d) {
    const Index at = r.min + d;
    std::memcpy(distance.bytes.data() + d * static_cast<Index>(sizeof at), &at, sizeof at);
  }
  all.emplace("locality_distance", std::move(distance));
  const std::vector<double> p = probabilities.doubles();
  auto* to = reinterpret_cast<double*>(mass.bytes.data());
  const double rows = static_cast<double>(c.args.q.batch * c.args.q.tokens);
  std::size_t at = 0;
  for (Index b = 0; b < c.args.q.batch; ++b)
    for (Index h = 0; h < heads_count; ++h)
      for (Index i = 0; i < c.args.q.tokens; ++i)
        for (Index j = 0; j < c.args.k.tokens; ++j, ++at) {
          const double delta = position_at(q, 0, q.batch == 1 ? 0 : b, i) -
                               position_at(k, 0, k.batch == 1 ? 0 : b, j);
          to[h * n + static_cast<Index>(std::floor(delta)) - r.min] += p[at] / rows;
        }
}

void add_scores(const AttendOptions& o, const Call& c, const AttentionPlan& plan,
                const NamedFiles& files, Arrays& all) {
  if (!o.scores && !o.terms && !o.probabilities && !o.locality) return;
  const std::vector<Index> shape{c.args.q.batch, c.args.q.heads, c.args.q.tokens, c.args.k.tokens};
  AttentionScores s;
  Array unasked;
  if (o.scores) {
    s.scores = add(all, "scores", shape).view();
    s.capped = add(all, "capped", shape).view();
  }
  if (o.terms) {
    s.query_position = add(all, "query_position", shape).view();
    s.position_key = add(all, "position_key", shape).view();
    s.position_position = add(all, "position_position", shape).view();
  }
  if (o.scores || o.terms) s.content = add(all, o.terms ? "content_key" : "content", shape).view();
  if (o.probabilities) {
    s.probabilities = add(all, "probabilities", shape).view();
  } else if (o.locality) {
    unasked = make_array(DType::f64, shape);
    s.probabilities = unasked.view();
  }
  plan.scores(c.args, files.inputs(), s);
  if (o.scores && o.terms) all.emplace("content", all.at("content_key"));
  if (o.locality) add_locality(c, o.probabilities ? all.at("probabilities") : unasked, all);
}

}  // namespace

int attend_verb(const AttendOptions& o) {
  if (array_format(o.output) != "safetensors")
    throw UsageError("attend writes several arrays: -o F.safetensors");
  if (o.json && is_stdout(o.output.path))
    throw UsageError("--json and the data cannot both go to stdout");
  refuse_overwriting(o.output.path,
                     {o.q, o.k, o.v, o.params, o.positions, o.key_positions, o.gradient,
                      o.cu_seqlens, o.key_cu_seqlens, o.documents, o.subject.arrays},
                     o.subject.text);
  const Subject subject = read_subject(o.subject);
  const ScoreEncodings e = score_encodings(subject, o.subject, o.with);
  Call c;
  read_call(c, o, e);
  AttentionPlan plan =
      plan_of(e, c.layer ? &*c.layer : nullptr,
              {.heads = c.args.q.heads,
               .head_dim = c.args.q.dim,
               .key_heads = c.args.k.heads,
               .value_dim = c.args.v.dim,
               .scale = o.scale.value_or(c.layer ? c.layer->content_scale(c.args.q.dim) : 0)},
              o.subject.context.value_or(length_of(c.args.key_positions)));
  NamedFiles files;
  files.read_parameters(plan.parameters(), o.params, o.subject.start, e);
  files.read_inputs(plan.inputs(), o.inputs);
  plan.lower(files.parameters(), distance_ranges(c.args.query_positions, c.args.key_positions));
  plan.forward(c.args, files.inputs(), c.result);
  Arrays all;
  if (!o.gradient.empty()) add_gradients(o, c, plan, files, all);
  add_scores(o, c, plan, files, all);
  all.emplace("out", std::move(c.out));
  all.emplace("log_sum_exp", std::move(c.log_sum_exp));
  write_arrays(o.output, all);
  report_written("posenc.attend/1", o.output.path, all, o.json);
  return kSuccess;
}

}  // namespace posenc::cli
