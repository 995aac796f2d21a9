// SPDX-License-Identifier: Apache-2.0
// llama.cpp's rope operator as an encoding: a scheme and a chain of scalings.
#include <algorithm>
#include <cmath>

#include "model/gguf/fields.h"
#include "model/gguf/lower.h"

namespace posenc::gguf {
namespace {

constexpr double kSame = 1e-12;  // relative; the same formula in another order of operations

bool same(double a, double b) {
  return std::abs(a - b) <= kSame * std::abs(b);
}

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
  std::string who() const { return arch_.program(); }

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
  const std::string who = arch.program();
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

}  // namespace posenc::gguf
