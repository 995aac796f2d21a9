// SPDX-License-Identifier: Apache-2.0
// The arguments of ggml_rope_ext, layer by layer, as llama.cpp's context and graphs form them; and
// the operator as an encoding: a scheme and a chain of scalings.
#include <cmath>

#include "model/gguf/hparams.h"

namespace posenc::inline v0::gguf {
namespace {

// YaRN's 0.1 m ln s + 1, 1 for s <= 1 (arXiv:2309.00071, eq. 22; DeepSeek's mscale).
double mscale(double s, double m) {
  return s <= 1 ? 1.0 : 0.1 * m * std::log(s) + 1.0;
}

// The attn_factor of the context: what the kernel's own 1 + 0.1 ln s is divided out of.
double context_attn_factor(const Architecture& arch, const Hparams& h) {
  double a = h.yarn_attn.value;
  const double s = h.factor.value;
  if (h.ext_factor.value != 0) {
    a = mscale(s, 1);
    if (h.log_multiplier) {
      const double all = h.log_multiplier->value;
      const double m = arch.flag("mscale_is_all_dim") && all != 1 ? all : 1;
      a = mscale(s, m) / mscale(s, all);
    }
    a /= 1 + 0.1 * std::log(s);
  }
  return a * h.attn_key.value;
}

// MLA graphs scale the softmax by (A (1 + 0.1 m ln s))^2, A being attn_factor (1 + 0.1 ln s).
double logit_factor(const Architecture& arch, const Hparams& h) {
  if (!arch.flag("logit_mscale")) return 1;
  const double ln = std::log(h.factor.value);
  const double m = h.log_multiplier ? h.log_multiplier->value : 0;
  const double a = context_attn_factor(arch, h) * (1 + 0.1 * ln) * (1 + 0.1 * m * ln);
  return a * a;
}

void compressed(const Architecture& arch, const Hparams& h, Index layer, RopeOperator& op) {
  if (of_layer(h.compress_ratio, layer) != 0) {
    op.base = *h.compress_base;
    op.factor = h.factor;
    op.attn_factor = op.ext_factor == 0 ? 1 : 1 / (1 + 0.1 * std::log(h.factor.value));
  } else {
    op.base = h.base;
    op.factor = arch.constant(1.0);
    op.ext_factor = 0;
    op.attn_factor = 1;
  }
}

// The same formula in another order of operations.
bool same(double a, double b) {
  return std::abs(a - b) <= 1e-12 * std::abs(b);
}

template <class T>
Json list(const std::vector<T>& values) {
  return Json(Json::Array(values.begin(), values.end()));
}

// The chain of scalings of one layer, with the gain that is still missing.
class Chain {
 public:
  Chain(const Architecture& arch, const Hparams& h, const RopeOperator& op, LayerSpec& layer)
      : arch_(arch), h_(h), op_(op), layer_(layer), missing_(op.amplitude()) {}

  void alpha(double& base) {
    if (!h_.alpha) return;
    if (op_.n_dims.value == h_.head_dim.value && op_.n_dims.value > 2) {
      Ntk ntk;
      ntk.factor = h_.alpha->value;
      ntk.formula = NtkFormula::alpha;
      scalings.emplace_back(ntk);
      field("ntk.factor", *h_.alpha);
      field("ntk.formula", arch_.constant("alpha"));
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
      field("linear.factor", op_.factor);
      return logit(nullptr);
    }
    Yarn y = yarn(law);
    logit(&y);
    scalings.emplace_back(y);
    describe(y);
    missing_ = 1;
  }

  void divisors(const DivisorTensors& d) {
    if (same(missing_, 1)) missing_ = 1;
    const bool divide = op_.uses_divisors && !d.always.values.empty();
    if (op_.uses_divisors && !divide && d.by_length()) return by_length(d);
    if (!divide && missing_ == 1) return;
    posenc::Divisors v;
    v.values = a_pair(divide ? d.always.values : std::vector<double>());
    v.attention_factor = missing_;
    add_field(layer_, "divisors.values", list(v.values), divide ? Origin::stated : Origin::derived,
              divide ? d.always.tensor : "none");
    field("divisors.attention_factor", h_.attn_key);
    scalings.emplace_back(std::move(v));
  }

  std::vector<Scaling> scalings;

 private:
  template <class T>
  void field(const char* name, const Sourced<T>& v) {
    add_field(layer_, name, v);
  }
  // One divisor a pair; without a tensor nothing is divided.
  std::vector<double> a_pair(std::vector<double> values) const {
    values.resize(static_cast<std::size_t>(op_.n_dims.value / 2), 1.0);
    return values;
  }

  void by_length(const DivisorTensors& d) {
    LongRope l;
    const auto take = [&](const Divisor& v, const char* name, std::vector<double>& factors) {
      const bool stated = !v.values.empty();
      factors = a_pair(v.values);
      field(name,
            stated ? Sourced<Json>{list(factors), Origin::stated, v.tensor} : usual(list(factors)));
    };
    take(d.within, "longrope.short_factor", l.short_factor);
    take(d.beyond, "longrope.long_factor", l.long_factor);
    l.original_context = h_.original_context.value;
    field("longrope.original_context", h_.original_context);
    l.switch_rule = LongRopeSwitch::held;
    field("longrope.switch_rule", usual("held"));
    l.attention_factor = missing_;
    add_field(layer_, "longrope.attention_factor", missing_, h_.attn_key.origin, h_.attn_key.where);
    scalings.emplace_back(std::move(l));
  }

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
    field("mscale_logit.factor", h_.factor);
    add_field(layer_, "mscale_logit.mscale_all_dim", m.mscale_all_dim, Origin::derived,
              "softmax scale times (A (1 + 0.1 m ln s))^2");
  }

  void describe(const Yarn& y) {
    field("yarn.factor", op_.factor);
    field("yarn.original_context", h_.original_context);
    field("yarn.beta_fast", h_.beta_fast);
    field("yarn.beta_slow", h_.beta_slow);
    field("yarn.truncate", usual(true));
    add_field(layer_, "yarn.extrapolation", y.extrapolation, h_.ext_factor.origin,
              h_.ext_factor.where);
    if (y.attn_factor != 1) field("yarn.attn_factor", h_.attn_key);
    if (y.attention_factor) field("yarn.attention_factor", arch_.constant(*y.attention_factor));
    if (y.mscale_all_dim) field("yarn.mscale", arch_.constant(*y.mscale));
    if (y.mscale_all_dim) field("yarn.mscale_all_dim", *h_.log_multiplier);
    if (y.logit_from_mscale) field("yarn.logit_from_mscale", arch_.constant(true));
    if (y.reversed_range == ReversedRange::step) field("yarn.reversed_range", usual("step"));
  }

  const Architecture& arch_;
  const Hparams& h_;
  const RopeOperator& op_;
  LayerSpec& layer_;
  double missing_;
};

Scheme scheme_of(const Architecture& arch, const Hparams& h, const RopeOperator& op, double base,
                 LayerSpec& layer) {
  const auto build = [&](auto scheme) {
    scheme.head_dim = op.head_dim.value;
    scheme.offset = op.offset;
    const bool all_behind = op.offset + op.n_dims.value == op.head_dim.value;
    scheme.rotary_dim = all_behind ? 0 : op.n_dims.value;
    scheme.base = base;
    scheme.pairing = op.mode == Mode::norm ? Pairing::interleaved : Pairing::half_split;
    add_field(layer, "head_dim", op.head_dim);
    add_field(layer, "rotary_dim", op.n_dims);
    if (op.offset == 0)
      add_field(layer, "offset", arch.constant(Index{0}));
    else
      add_field(layer, "offset", op.offset, Origin::derived, "head_dim - rotary_dim");
    if (base == op.base.value)
      add_field(layer, "base", op.base);
    else
      add_field(layer, "base", base, Origin::derived,
                op.base.where + " raised by rope.scaling.alpha");
    add_field(layer, "pairing", arch.constant(enum_text(scheme.pairing)));
    add_field(layer, "direction", usual(1));
    add_field(layer, "output_order", usual("in_place"));
    return scheme;
  };
  if (!h.sections) return build(Rope());
  Mrope m = build(Mrope());
  m.sections = h.sections->value;
  m.layout = op.mode == Mode::imrope ? MropeLayout::ggml_imrope : MropeLayout::ggml_mrope;
  add_field(layer, "sections", list(m.sections), h.sections->origin, h.sections->where);
  add_field(layer, "layout", arch.constant(enum_text(m.layout)));
  return m;
}

}  // namespace

double RopeOperator::amplitude() const {
  return ext_factor == 0 ? attn_factor : attn_factor * (1 + 0.1 * std::log(factor.value));
}

std::optional<RopeOperator> rope_operator(const Architecture& arch, const Hparams& h, Index layer) {
  const auto i = static_cast<std::size_t>(layer);
  if (!h.rotated[i]) return std::nullopt;
  const bool slides = h.sliding[i];
  // Graphs that do not ask layer by layer take the widths of layer 0.
  const bool narrow = arch.flag("layer_widths") ? slides : h.sliding[0];
  RopeOperator op;
  op.mode = h.mode;
  op.head_dim = (arch.flag("mla") ? slides : narrow) ? h.head_dim_sliding : h.head_dim;
  op.n_dims = narrow ? h.rotary_dim_sliding : h.rotary_dim;
  if (arch.text("rotary_dim") == "head") op.n_dims = op.head_dim;
  if (arch.flag("mla") || arch.flag("tail")) op.offset = op.head_dim.value - op.n_dims.value;
  op.base = slides ? h.base_sliding : h.base;
  op.factor = slides ? h.factor_sliding : h.factor;
  op.ext_factor = h.ext_factor.value;
  op.attn_factor = context_attn_factor(arch, h);
  if (arch.has("plain_base")) op.attn_factor = 1;
  if (slides && h.sliding_plain) {
    op.factor = arch.constant(1.0);
    op.ext_factor = 0;
    op.attn_factor = 1;
  }
  op.logit_factor = logit_factor(arch, h);
  const std::string_view divided = arch.text("factors");
  op.uses_divisors = !divided.empty() && !(slides && divided.substr(0, 4) == "full");
  if (arch.flag("dsv4")) compressed(arch, h, layer, op);
  return op;
}

Encoding lower_operator(const Architecture& arch, const Hparams& h, const DivisorTensors& divisors,
                        const RopeOperator& op, LayerSpec& layer) {
  Chain chain(arch, h, op, layer);
  Geometric law{op.base.value, op.n_dims.value};
  chain.alpha(law.base);
  Encoding e;
  e.scheme = scheme_of(arch, h, op, law.base, layer);
  if (!chain.scalings.empty()) {
    const auto d = static_cast<double>(law.width);
    law.base *= std::pow(h.alpha->value, d / (d - 2));
  }
  chain.frequency_scale(law);
  chain.divisors(divisors);
  e.scalings = std::move(chain.scalings);
  return e;
}

}  // namespace posenc::v0::gguf
