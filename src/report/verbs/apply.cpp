// SPDX-License-Identifier: Apache-2.0
// posenc apply: rotates queries and keys from files as a layer of the model does.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "enum_words.h"
#include "heads_order.h"
#include "notes.h"
#include "posenc/report/verb.h"
#include "posenc/rotary/plan.h"
#include "posenc/rotary/pope.h"

namespace posenc::report {
namespace {

struct ApplyOptions {
  SubjectOptions subject;
  std::string q, k, bias, positions, order, precision = "exact", mode = "forward";
  bool temperature = false;
};

template <class T, class F>
void scale_rows(const Heads& q, F&& factor) {
  for (Index b = 0; b < q.batch; ++b)
    for (Index t = 0; t < q.tokens; ++t) {
      const double f = factor(b, t);
      for (Index h = 0; h < q.heads; ++h)
        for (Index d = 0; d < q.dim; ++d) {
          T& x = static_cast<T*>(q.data)[b * q.batch_stride + t * q.token_stride +
                                         h * q.head_stride + d * q.dim_stride];
          x = static_cast<T>(x * f);
        }
    }
}

void apply_temperature(const Subject& s, const ApplyOptions& o, const Heads& q,
                       const Positions& p) {
  if (!s.model) throw UsageError("--temperature needs a model: a SCHEME has none");
  const LayerSpec& layer = chosen_layer(*s.model, o.subject);
  if (!layer.query_temperature)
    throw InputError(
        fmt::format("{}: layer {} has no query temperature", s.model->file, layer.index));
  if (q.dtype != DType::f32 && q.dtype != DType::f64)
    throw InputError(
        "--temperature works on f32 and f64 queries: a sixteen-bit q would be rounded twice");
  const auto position = [&](Index b, Index t) {
    return position_at(p, 0, p.batch == 1 ? 0 : b, t);
  };
  if (layer.query_temperature->by == TemperatureIndex::order)
    for (Index b = 0; b < p.batch; ++b)
      for (Index t = 1; t < q.tokens; ++t)
        if (position(b, t) != position(0, 0) + static_cast<double>(t))
          throw InputError(fmt::format(
              "{}: the query temperature of layer {} counts tokens of a row, not positions: with "
              "--temperature the positions must count up by 1, which {} after {} does not",
              s.model->file, layer.index, position(b, t), position(b, t - 1)));
  const auto factor = [&](Index b, Index t) {
    return query_factor(*layer.query_temperature, position(b, t));
  };
  if (q.dtype == DType::f32)
    scale_rows<float>(q, factor);
  else
    scale_rows<double>(q, factor);
}

// What the layer does to q and k. One of a rotary model that turns nothing leaves them as they are:
// the queries of Llama-4's have a temperature all the same.
RotarySpec spec_of(const Subject& s, const SubjectOptions& o) {
  if (!s.model) return rotary_of(s, o);
  require_readable(*s.model);
  const LayerSpec& layer = chosen_layer(*s.model, o);
  const auto turns = [](const LayerSpec& l) { return l.rotary.has_value(); };
  const std::vector<LayerSpec>& layers = layers_of(*s.model, o);
  const auto other = std::find_if(layers.begin(), layers.end(), turns);
  if (layer.rotary || layer.has_scheme() || other == layers.end()) return rotary_of(s, o);
  note(fmt::format("layer {} rotates nothing: q and k stay as they are\n", layer.index));
  RotarySpec spec;
  spec.head_dim = other->rotary->head_dim;
  return spec;
}

// The words of files and options, before the library speaks of tensors.
void check_queries(const std::string& file, const Heads& h, Index head_dim,
                   const PositionList& list, const std::string& title) {
  if (h.dim != head_dim)
    throw InputError(fmt::format("{}: has heads of {} channels, {} rotates heads of {}", file,
                                 h.dim, title, head_dim));
  const Index count = list.owned.count(), rows = list.owned.batch;
  if (count != h.tokens)
    throw InputError(
        fmt::format("{}: has {} tokens, and --positions are {}", file, h.tokens, count));
  if (rows != 1 && rows != h.batch)
    throw InputError(
        fmt::format("{}: has a batch of {}, and --positions have {} rows", file, h.batch, rows));
}

Heads heads_of(Array& a, HeadsLayout order) {
  static double nothing;  // an array without elements has no memory, and is there all the same
  Heads h = heads(a.view(), order);
  if (h.data == nullptr) h.data = &nothing;
  return h;
}

// Queries and keys as their files have them.
struct Queries {
  Arrays arrays{};  // q, k
  QK x{};           // views of them
  DType dtype() const { return arrays.begin()->second.dtype; }
};
Queries read_queries(const ApplyOptions& o, Index head_dim, const PositionList& list,
                     const std::string& title) {
  Queries all;
  const auto read = [&](const std::string& file, const char* which, Heads& to) {
    if (file.empty()) return;
    Array& a = all.arrays.emplace(which, read_array(file, which)).first->second;
    if (!is_float(a.dtype))
      throw InputError(
          fmt::format("{}: must be f64, f32, f16 or bf16, got {}", file, dtype_name(a.dtype)));
    to = heads_of(a, heads_order(a, o.order, which));
    check_queries(file, to, head_dim, list, title);
  };
  read(o.q, "q", all.x.q);
  read(o.k, "k", all.x.k);
  if (all.x.q.data && all.x.k.data && all.x.q.dtype != all.x.k.dtype)
    throw InputError(fmt::format("q is {} and k is {}: they must have one dtype",
                                 dtype_name(all.x.q.dtype), dtype_name(all.x.k.dtype)));
  return all;
}

Arrays turned(const ApplyOptions& o, const Subject& subject) {
  if (!o.bias.empty()) throw UsageError("--bias is an option of pope only");
  RotarySpec spec = spec_of(subject, o.subject);
  spec.precision = enum_word<Precision>("--precision", o.precision);
  const RotateMode mode = enum_word<RotateMode>("--mode", o.mode);
  const PositionList list = read_positions(o.positions);
  Queries all = read_queries(o, spec.head_dim, list, subject.title);
  const RotaryPlan plan(spec, all.dtype(), {.outside = OutsideRange::allow});
  const Positions p = spread_over_axes(list, spec.axes());
  if (mode != RotateMode::shift) check_lengths(o.subject, spec, p);
  plan.apply(all.x, p, mode);
  if (o.temperature) apply_temperature(subject, o, all.x.q, p);
  return std::move(all.arrays);
}

// What holds the lengths of a spectrum.
RotarySpec spec_of(const Spectrum& s) {
  RotarySpec spec;
  spec.blocks.emplace_back().spectrum = s;
  return spec;
}

// PoPE is no rotation in place: heads of d channels become heads of 2 d, and keys have a bias.
Arrays polar(const ApplyOptions& o, const Subject& subject) {
  if (enum_word<RotateMode>("--mode", o.mode) != RotateMode::forward)
    throw UsageError("pope goes forward only here: its gradient is PopePlan::gradient");
  if (enum_word<Precision>("--precision", o.precision) != Precision::exact)
    throw UsageError("pope has the precision exact only");
  if (o.temperature) throw UsageError("--temperature needs a model: a SCHEME has none");
  if (!o.bias.empty() && o.k.empty()) throw UsageError("--bias is added to keys: give --k");
  const Spectrum spectrum = resolve_spectrum(*subject.encoding, {o.subject.context.value_or(0)});
  const PositionList list = read_positions(o.positions);
  Queries all = read_queries(o, spectrum.pairs(), list, subject.title);
  const PopePlan plan(spectrum, all.dtype(), {.outside = OutsideRange::allow});
  const Positions p = spread_over_axes(list, 1);
  check_lengths(o.subject, spec_of(spectrum), p);
  Array bias;
  if (!o.bias.empty()) bias = read_array(o.bias, "bias");
  Arrays out;
  for (const auto& [which, in] : all.arrays) {
    const bool keys = which == "k";
    Array& y = out.emplace(which, Array{in.dtype, in.shape, {}}).first->second;
    y.shape.back() *= 2;
    y.bytes.resize(2 * in.bytes.size());
    plan.apply(keys ? all.x.k : all.x.q, heads_of(y, heads_order(y, o.order, which.c_str())), p,
               keys && !o.bias.empty() ? std::as_const(bias).view() : TensorView());
  }
  return out;
}

Report apply(const ApplyOptions& o, const Request& r) {
  if (o.q.empty() && o.k.empty()) throw UsageError("apply needs --q or --k");
  if (!r.in_memory && array_format({r.path, r.format}) != "safetensors" && !o.q.empty() &&
      !o.k.empty())
    throw UsageError("q and k are two arrays: write .safetensors");
  if (o.temperature && o.q.empty()) throw UsageError("--temperature multiplies q: give --q");
  const Subject subject = read_subject(o.subject);
  const bool pope = subject.encoding && std::holds_alternative<Pope>(subject.encoding->scheme);
  return {.schema = "posenc.apply/1", .arrays = pope ? polar(o, subject) : turned(o, subject)};
}

Verb::Run declare_apply(Words& w) {
  auto o = std::make_shared<ApplyOptions>();
  w.subject(o->subject, Takes::model_or_scheme);
  w.text("--q", o->q, "F", "queries: F.npy, F.safetensors or F.safetensors:NAME").file();
  w.text("--k", o->k, "F", "keys, likewise").file();
  w.text("--bias", o->bias, "F", "key bias of pope, [heads, head_dim] of f32 or f64").file();
  w.text("--positions", o->positions, "P", "A:B[:STEP], a list or an .npy").required().file();
  w.text("--order", o->order, "ORDER",
         "axes: thd (rank 3), bthd, bhtd or tbhd (rank 4, must be given)");
  w.text("--precision", o->precision, "P", "exact, hf_float32, hf_bfloat16_table or ggml")
      .otherwise("exact");
  w.text("--sense,--mode", o->mode, "MODE",
         "what the rotation computes: forward, gradient, inverse or shift")
      .otherwise("forward");
  w.flag("--temperature", o->temperature, "also multiply q by the layer's query temperature");
  w.output(Holds::one_array, "F.safetensors: q and k in the dtype of the input").required();
  return [o](const Request& r) { return apply(*o, r); };
}

}  // namespace

const Verb apply_verb{
    "apply", "rotate queries and keys from files as a model's layer does", &declare_apply,
    "Examples:\n  posenc apply config.json --layer 3 --q q.npy --k k.npy --positions 0:128 -o "
    "rotated.safetensors\n"
    "  posenc apply model.gguf --q x.safetensors:q --positions 7 --order bhtd --mode inverse -o "
    "out.safetensors"};

}  // namespace posenc::report
