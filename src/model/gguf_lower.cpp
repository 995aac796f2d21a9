// SPDX-License-Identifier: Apache-2.0
#include "model/gguf_lower.h"

#include <algorithm>
#include <cmath>

namespace posenc::gguf {
namespace {

constexpr double kSame = 1e-12;  // relative; the same formula in another order of operations

bool same(double a, double b) {
  return std::abs(a - b) <= kSame * std::abs(b);
}

class Fields {
 public:
  explicit Fields(LayerSpec& layer) : layer_(layer) {}
  template <class T>
  void add(std::string name, const Sourced<T>& v) {
    add(std::move(name), Json(v.value), v.origin, v.where);
  }
  void add(std::string name, Json value, Origin origin, std::string where) {
    layer_.fields.push_back({std::move(name), std::move(value), origin, std::move(where)});
  }

 private:
  LayerSpec& layer_;
};

Json list(const std::vector<double>& values) {
  Json::Array a(values.begin(), values.end());
  return Json(std::move(a));
}

// The chain of scalings of one layer, with the gain that is still missing.
class Chain {
 public:
  Chain(const Architecture& arch, const Hparams& h, const RopeOperator& op, LayerSpec& layer)
      : arch_(arch), h_(h), op_(op), fields_(layer), missing_(op.amplitude()) {}

  void alpha(double& base) {
    if (!h_.alpha) return;
    if (op_.n_dims.value == h_.head_dim.value && op_.n_dims.value > 2) {
      Ntk ntk;
      ntk.factor = h_.alpha->value;
      ntk.formula = NtkFormula::alpha;
      scalings.emplace_back(ntk);
      fields_.add("ntk.factor", *h_.alpha);
      fields_.add("ntk.formula", Json("alpha"), Origin::class_default, who());
      return;
    }
    // llama.cpp raises by the head width, whatever part of it turns.
    const auto d = static_cast<double>(h_.head_dim.value);
    base *= std::pow(h_.alpha->value, d / (d - 2));
  }

  void frequency_scale(const Geometric& law) {
    if (op_.factor.value == 1) return logit(nullptr);
    if (op_.ext_factor == 0) {
      scalings.emplace_back(Linear{op_.factor.value});
      fields_.add("linear.factor", op_.factor);
      return logit(nullptr);
    }
    Yarn y = yarn(law);
    logit(&y);
    scalings.emplace_back(y);
    describe(y);
    missing_ = 1;
  }

  void divisors(const DivisorTensors& d) {
    const auto pairs = static_cast<std::size_t>(op_.n_dims.value / 2);
    if (same(missing_, 1)) missing_ = 1;
    const auto first = [&](const Divisor& v) {
      std::vector<double> out(pairs, 1.0);  // no tensor: nothing is divided
      std::copy_n(v.values.begin(), std::min(pairs, v.values.size()), out.begin());
      return out;
    };
    const bool by_length = !d.beyond.values.empty() || !d.within.values.empty();
    if (op_.uses_divisors && d.always.values.empty() && by_length) {
      LongRope l;
      l.short_factor = first(d.within);
      l.long_factor = first(d.beyond);
      l.original_context = h_.original_context.value;
      l.switch_rule = LongRopeSwitch::held;
      l.attention_factor = missing_;
      describe(l, d);
      scalings.emplace_back(std::move(l));
      return;
    }
    const bool divide = op_.uses_divisors && !d.always.values.empty();
    if (!divide && missing_ == 1) return;
    posenc::Divisors v;
    v.values = first(divide ? d.always : Divisor{});
    v.attention_factor = missing_;
    fields_.add("divisors.values", list(v.values), divide ? Origin::stated : Origin::derived,
                divide ? d.always.tensor : "none");
    fields_.add("divisors.attention_factor", h_.attn_key);
    scalings.emplace_back(std::move(v));
  }

  std::vector<Scaling> scalings;

 private:
  std::string who() const { return "llama.cpp (" + arch_.name() + ")"; }

  Yarn yarn(const Geometric& law) const {
    Yarn y;
    y.factor = op_.factor.value;
    y.original_context = h_.original_context.value;
    y.beta_fast = h_.beta_fast.value;
    y.beta_slow = h_.beta_slow.value;
    y.extrapolation = op_.ext_factor;
    y.attn_factor = h_.attn_key.value;
    if (h_.log_multiplier) {
      const double all = h_.log_multiplier->value;
      y.mscale = arch_.flag("mscale_is_all_dim") && all != 1 ? all : 1;
      y.mscale_all_dim = all;
    }
    if (!same(y.gain(), op_.amplitude())) {
      y.attn_factor = 1;
      y.mscale.reset();
      y.mscale_all_dim.reset();
      y.attention_factor = same(op_.amplitude(), 1) ? 1 : op_.amplitude();
    }
    const CorrectionRange range = y.range_of(law, static_cast<double>(y.original_context));
    if (range.high < range.low) y.reversed_range = ReversedRange::step;
    return y;
  }

  void logit(Yarn* y) {
    if (same(op_.logit_factor, 1)) return;
    if (y != nullptr && y->mscale_all_dim && same(y->logit(), op_.logit_factor)) {
      y->logit_from_mscale = true;
      return;
    }
    const double s = h_.factor.value;
    MscaleLogit m;
    m.factor = s;
    m.mscale_all_dim = s > 1 ? (std::sqrt(op_.logit_factor) - 1) / (0.1 * std::log(s)) : 0;
    if (!(m.mscale_all_dim > 0))
      refuse("gguf", "the softmax factor must be above 1 and come of a factor above 1",
             op_.logit_factor);
    scalings.emplace_back(m);
    fields_.add("mscale_logit.factor", h_.factor);
    fields_.add("mscale_logit.mscale_all_dim", Json(m.mscale_all_dim), Origin::derived,
                "softmax scale times (A (1 + 0.1 m ln s))^2");
  }

  void describe(const Yarn& y) {
    fields_.add("yarn.factor", op_.factor);
    fields_.add("yarn.original_context", h_.original_context);
    fields_.add("yarn.beta_fast", h_.beta_fast);
    fields_.add("yarn.beta_slow", h_.beta_slow);
    fields_.add("yarn.truncate", Json(true), Origin::class_default, "llama.cpp");
    fields_.add("yarn.extrapolation", Json(y.extrapolation), h_.ext_factor.origin,
                h_.ext_factor.where);
    if (y.attn_factor != 1) fields_.add("yarn.attn_factor", h_.attn_key);
    if (y.attention_factor)
      fields_.add("yarn.attention_factor", Json(*y.attention_factor), Origin::class_default, who());
    if (y.mscale_all_dim) {
      fields_.add("yarn.mscale", Json(*y.mscale), Origin::class_default, who());
      fields_.add("yarn.mscale_all_dim", *h_.log_multiplier);
    }
    if (y.logit_from_mscale)
      fields_.add("yarn.logit_from_mscale", Json(true), Origin::class_default, who());
    if (y.reversed_range == ReversedRange::step)
      fields_.add("yarn.reversed_range", Json("step"), Origin::class_default, "llama.cpp");
  }

  void describe(const LongRope& l, const DivisorTensors& d) {
    const auto source = [](const Divisor& v) {
      return v.values.empty() ? Origin::class_default : Origin::stated;
    };
    const auto where = [](const Divisor& v) {
      return v.values.empty() ? std::string("llama.cpp") : v.tensor;
    };
    fields_.add("longrope.short_factor", list(l.short_factor), source(d.within), where(d.within));
    fields_.add("longrope.long_factor", list(l.long_factor), source(d.beyond), where(d.beyond));
    fields_.add("longrope.original_context", h_.original_context);
    fields_.add("longrope.switch_rule", Json("held"), Origin::class_default, "llama.cpp");
    fields_.add("longrope.attention_factor", Json(*l.attention_factor), h_.attn_key.origin,
                h_.attn_key.where);
  }

  const Architecture& arch_;
  const Hparams& h_;
  const RopeOperator& op_;
  Fields fields_;
  double missing_;
};

Scheme scheme_of(const Hparams& h, const RopeOperator& op, double base) {
  Rope r;
  r.head_dim = op.head_dim.value;
  r.rotary_dim = op.n_dims.value;
  r.offset = op.offset;
  r.base = base;
  r.pairing = op.mode == Mode::norm ? Pairing::interleaved : Pairing::half_split;
  if (r.offset + r.rotary_dim == r.head_dim) r.rotary_dim = 0;  // all behind the offset
  if (!h.sections) return r;
  Mrope m;
  m.head_dim = r.head_dim;
  m.rotary_dim = r.rotary_dim;
  m.offset = r.offset;
  m.base = r.base;
  m.pairing = r.pairing;
  m.sections = h.sections->value;
  m.layout = op.mode == Mode::imrope ? MropeLayout::ggml_imrope : MropeLayout::ggml_mrope;
  return m;
}

void describe_rope(const Architecture& arch, const Hparams& h, const RopeOperator& op, double base,
                   Fields& fields) {
  const std::string who = "llama.cpp (" + arch.name() + ")";
  fields.add("head_dim", op.head_dim);
  fields.add("rotary_dim", op.n_dims);
  fields.add("offset", Json(op.offset), op.offset == 0 ? Origin::class_default : Origin::derived,
             op.offset == 0 ? who : "head_dim - rotary_dim");
  if (base == op.base.value)
    fields.add("base", op.base);
  else
    fields.add("base", Json(base), Origin::derived,
               op.base.where + " raised by rope.scaling.alpha");
  fields.add("pairing", Json(op.mode == Mode::norm ? "interleaved" : "half_split"),
             Origin::class_default, who);
  fields.add("direction", Json(1), Origin::class_default, "llama.cpp");
  fields.add("output_order", Json("in_place"), Origin::class_default, "llama.cpp");
  if (!h.sections) return;
  Json::Array sections(h.sections->value.begin(), h.sections->value.end());
  fields.add("sections", Json(std::move(sections)), h.sections->origin, h.sections->where);
  fields.add("layout", Json(op.mode == Mode::imrope ? "ggml_imrope" : "ggml_mrope"),
             Origin::class_default, who);
}

// Visible keys of a layer: llama.cpp masks p_query - p_key >= n, or beyond n / 2 on both sides.
AttentionSpec attention_of(const Architecture& arch, const Hparams& h, Index layer, Fields& f) {
  const auto i = static_cast<std::size_t>(layer);
  AttentionSpec a;
  const std::string who = "llama.cpp (" + arch.name() + ")";
  const bool headless = h.heads.empty() || h.heads[i % h.heads.size()] == 0;
  const bool no_keys = arch.text("linear") == "no_kv_heads_no_ff" && !h.kv_heads.empty() &&
                       h.kv_heads[i % h.kv_heads.size()] == 0;
  if (h.linear[i])
    a.kind = AttentionKind::linear;
  else if (headless || no_keys)
    a.kind = AttentionKind::none;
  else if (h.sliding[i])
    a.kind = h.window.kind;
  f.add("attention.kind", Json(enum_text(a.kind)),
        h.sliding[i] ? h.window.pattern_origin : Origin::class_default,
        h.sliding[i] ? h.window.pattern_where : who);
  if (a.kind == AttentionKind::linear || a.kind == AttentionKind::none) return a;
  if (h.causal.value) a.right = 0;
  f.add("causal", h.causal);
  if (a.kind == AttentionKind::full) return a;
  const Index n = h.window.size.value;
  f.add("window", h.window.size);
  if (a.kind == AttentionKind::chunked) {
    a.chunk = n;
  } else if (arch.group("window")->text("kind") == "symmetric") {
    a.left = n / 2;
    if (!a.right) a.right = n / 2;
  } else {
    a.left = n - 1;
  }
  return a;
}

}  // namespace

Encoding lower_operator(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                        const RopeOperator& op, LayerSpec& layer) {
  Fields fields(layer);
  Chain chain(arch, h, op, layer);
  double base = op.base.value;
  chain.alpha(base);
  Encoding e;
  e.scheme = scheme_of(h, op, base);
  describe_rope(arch, h, op, base, fields);
  Geometric law{base, op.n_dims.value};
  if (!chain.scalings.empty()) {
    const auto d = static_cast<double>(law.width);
    law.base *= std::pow(h.alpha->value, d / (d - 2));
  }
  chain.frequency_scale(law);
  chain.divisors(divisors);
  e.scalings = std::move(chain.scalings);
  return e;
}

namespace {

void add_encoding(LayerSpec& layer, Scheme scheme, const std::string& where) {
  Sourced<Encoding> e;
  e.value.scheme = std::move(scheme);
  e.where = where;
  layer.encodings.push_back(std::move(e));
}

// What acts in the score: T5's buckets, ALiBi.
void add_bias(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  Fields f(layer);
  const std::string who = "llama.cpp (" + arch.name() + ")";
  if (arch.flag("t5")) {
    T5 t5;
    t5.bidirectional = !h.causal.value;
    t5.max_distance = arch.number("t5_max_distance", 128);
    const auto buckets = keys.integer("attention.relative_buckets_count");
    if (!buckets || buckets->value < 4 || buckets->value % 4 != 0 || buckets->value > 4096) {
      keys.error(buckets ? "out_of_range" : "missing_key",
                 keys.full("attention.relative_buckets_count"),
                 "attention.relative_buckets_count must be a multiple of 4, 4096 at most");
      return;
    }
    t5.num_buckets = buckets->value;
    layer.scheme = "t5";
    f.add("num_buckets", *buckets);
    f.add("max_distance", Json(t5.max_distance), Origin::class_default, who);
    f.add("bidirectional", Json(t5.bidirectional), h.causal.origin, h.causal.where);
    add_encoding(layer, t5, who);
  }
  Sourced<double> bias{static_cast<double>(arch.number("alibi", 0)), Origin::class_default, who};
  if (arch.text("alibi") == "key")
    if (const auto v = keys.number("attention.max_alibi_bias")) bias = *v;
  if (arch.has("alibi_layers") && arch.number("alibi_layers", 0) != h.layers) bias.value = 0;
  if (!(bias.value > 0)) return;
  if (bias.value > 1000) {
    keys.error("out_of_range", bias.where, "the largest ALiBi exponent must be at most 1000");
    return;
  }
  Alibi alibi;
  alibi.max_bias = bias.value;
  layer.scheme = "alibi";
  f.add("max_bias", bias);
  add_encoding(layer, alibi, bias.where);
}

void add_temperature(const Architecture& arch, const Hparams& h, Keys& keys, LayerSpec& layer) {
  const std::string_view rule = arch.text("temperature");
  const std::string who = "llama.cpp (" + arch.name() + ")";
  Sourced<double> beta{0, Origin::class_default, who};
  Sourced<Index> period{0, Origin::class_default, who};
  if (rule.empty()) return;
  if (rule == "llama4") {
    // On layers that do not turn, and only while chunks are in use.
    if (layer.rotary || h.window.kind == AttentionKind::full) return;
    beta.value = 0.1;
    period.value = 8192;
  } else {
    if (const auto v = keys.number("attention.temperature_scale")) beta = *v;
    if (rule == "original_context")
      period = h.original_context;
    else if (const auto length = keys.integer("attention.temperature_length"))
      period = *length;
  }
  if (beta.value == 0) return;
  if (period.value < 1) {
    keys.error("missing_key", keys.full("attention.temperature_length"),
               "the query temperature needs its length");
    return;
  }
  QueryTemperature t;
  t.form = rule == "llama4" ? TemperatureForm::llama4 : TemperatureForm::ministral;
  t.beta = beta.value;
  t.period = period.value;
  layer.query_temperature = t;
  Fields f(layer);
  f.add("query_temperature.form", Json(enum_text(t.form)), Origin::class_default, who);
  f.add("query_temperature.beta", beta);
  f.add("query_temperature.period", period);
}

}  // namespace

LayerSpec lower_layer(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                      Keys& keys, Index layer, Index length) {
  LayerSpec out;
  out.index = layer;
  Fields fields(out);
  out.attention = attention_of(arch, h, layer, fields);
  const bool attends =
      out.attention.kind != AttentionKind::linear && out.attention.kind != AttentionKind::none;
  if (attends) add_bias(arch, h, keys, out);
  if (const auto op = rope_operator(arch, h, layer)) {
    try {
      Sourced<Encoding> e;
      e.value = lower_operator(arch, h, divisors, *op, out);
      e.origin = Origin::derived;
      e.where = "llama.cpp (" + arch.name() + ")";
      out.rotary = resolve(e.value, Context{length});
      out.encodings.push_back(std::move(e));
      if (out.scheme == "none") out.scheme = "rope";
      out.unrotates_output = arch.flag("dsv4");
      fields.add("attention_factor", Json(out.rotary->blocks.at(0).spectrum.gain), Origin::derived,
                 "the chain of scalings");
      fields.add("logit_factor", Json(out.rotary->logit_factor()), Origin::derived,
                 "the chain of scalings");
    } catch (const std::invalid_argument& e) {
      keys.error("refused", arch.name() + ".rope", e.what());
    }
  }
  if (attends) add_temperature(arch, h, keys, out);
  return out;
}

}  // namespace posenc::gguf
