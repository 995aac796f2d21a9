// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>

#include "cache/rotary_json.h"
#include "posenc/core/error.h"

namespace posenc::inline v0::detail {
namespace {

template <class T>
Json list_json(const std::vector<T>& values) {
  Json::Array all;
  for (const T x : values) all.emplace_back(x);
  return all;
}

Json ggml_json(const GgmlForm& g) {
  return Json::object({{"base", g.base},
                       {"n_dims", g.n_dims},
                       {"freq_scale", g.freq_scale},
                       {"ext_factor", g.ext_factor},
                       {"attn_factor", g.attn_factor},
                       {"beta_fast", g.beta_fast},
                       {"beta_slow", g.beta_slow},
                       {"original_context", g.original_context},
                       {"factors", list_json(g.factors)},
                       {"restart", list_json(g.restart)}});
}

Json block_json(const RotaryBlock& b) {
  const Spectrum& s = b.spectrum;
  Json all = Json::object({{"offset", b.offset},
                           {"pairing", enum_text(b.pairing)},
                           {"direction", Index{b.direction}},
                           {"output_order", enum_text(b.output_order)},
                           {"frequency", list_json(s.frequency)},
                           {"heads", s.heads},
                           {"axes", s.axes},
                           {"gain", s.gain},
                           {"logit_factor", s.logit_factor},
                           {"valid_from", s.valid_from},
                           {"valid_to", s.valid_to},
                           {"log2_decay", list_json(b.log2_decay)},
                           {"decay_center", b.decay_center},
                           {"decay_scale", b.decay_scale}});
  if (s.geometric)
    all.set("geometric",
            Json::object({{"base", s.geometric->base}, {"width", s.geometric->width}}));
  if (s.ggml) all.set("ggml", ggml_json(*s.ggml));
  return all;
}

class RotaryReader {
 public:
  RotaryReader(const std::string& file, const std::string& place) : file_(file), place_(place) {}

  RotarySpec spec(const Json& j) const {
    RotarySpec s;
    s.head_dim = integer(j, "head_dim");
    s.precision = named<Precision>(j, "precision");
    s.bfloat16_rounds_once = integer(j, "bfloat16_rounds_once") != 0;
    for (const Json& b : list(j, "blocks")) s.blocks.push_back(block(b));
    try {
      check_rotary(s);
    } catch (const std::invalid_argument& e) {
      fail(std::string("must be a rotation: ") + e.what());
    }
    return s;
  }

 private:
  const std::string &file_, &place_;

  [[noreturn]] void fail(const std::string& problem) const {
    throw FormatError(file_, place_, problem);
  }
  const Json& member(const Json& j, const char* key) const {
    const Json* m = j.find(key);
    if (m == nullptr) fail(std::string("must have ") + key);
    return *m;
  }
  Index integer(const Json& j, const char* key) const {
    const Json& m = member(j, key);
    if (!m.is_integer()) fail(std::string(key) + " must be an integer");
    return m.as_integer();
  }
  double number(const Json& j, const char* key) const {
    const Json& m = member(j, key);
    if (!m.is_number()) fail(std::string(key) + " must be a number");
    return m.as_number();
  }
  const Json::Array& list(const Json& j, const char* key) const {
    const Json& m = member(j, key);
    if (!m.is_array()) fail(std::string(key) + " must be a list");
    return m.as_array();
  }
  std::vector<double> numbers(const Json& j, const char* key) const {
    std::vector<double> all;
    for (const Json& x : list(j, key)) {
      if (!x.is_number()) fail(std::string(key) + " must be a list of numbers");
      all.push_back(x.as_number());
    }
    return all;
  }
  template <NamedEnum E>
  E named(const Json& j, const char* key) const {
    const Json& m = member(j, key);
    const auto& names = EnumNames<E>::value;
    const auto at =
        m.is_string() ? std::find(names.begin(), names.end(), m.as_string()) : names.end();
    if (at == names.end()) fail(std::string(key) + " must be a known word");
    return static_cast<E>(at - names.begin());
  }

  GgmlForm ggml(const Json& j) const {
    GgmlForm g;
    g.base = number(j, "base"), g.n_dims = integer(j, "n_dims");
    g.freq_scale = number(j, "freq_scale"), g.ext_factor = number(j, "ext_factor");
    g.attn_factor = number(j, "attn_factor");
    g.beta_fast = number(j, "beta_fast"), g.beta_slow = number(j, "beta_slow");
    g.original_context = integer(j, "original_context");
    g.factors = numbers(j, "factors");
    for (const Json& x : list(j, "restart")) {
      if (!x.is_integer()) fail("restart must be a list of integers");
      g.restart.push_back(x.as_integer());
    }
    return g;
  }

  RotaryBlock block(const Json& j) const {
    RotaryBlock b;
    Spectrum& s = b.spectrum;
    b.offset = integer(j, "offset"), b.pairing = named<Pairing>(j, "pairing");
    b.direction = block_direction(integer(j, "direction"));
    b.output_order = named<OutputOrder>(j, "output_order");
    s.frequency = numbers(j, "frequency");
    s.heads = integer(j, "heads"), s.axes = integer(j, "axes");
    if (s.heads < 1 || s.heads > 65536 || s.axes < 1 || s.axes > 65536)
      fail("heads and axes must be from 1 to 65536");
    s.gain = number(j, "gain"), s.logit_factor = number(j, "logit_factor");
    s.valid_from = integer(j, "valid_from"), s.valid_to = integer(j, "valid_to");
    if (const Json* g = j.find("geometric"))
      s.geometric = Geometric{number(*g, "base"), integer(*g, "width")};
    if (const Json* g = j.find("ggml")) s.ggml = ggml(*g);
    b.log2_decay = numbers(j, "log2_decay");
    b.decay_center = number(j, "decay_center"), b.decay_scale = number(j, "decay_scale");
    return b;
  }
};

}  // namespace

Json rotary_json(const RotarySpec& s) {
  Json::Array blocks;
  for (const RotaryBlock& b : s.blocks) blocks.push_back(block_json(b));
  return Json::object({{"head_dim", s.head_dim},
                       {"precision", enum_text(s.precision)},
                       {"bfloat16_rounds_once", Index{s.bfloat16_rounds_once ? 1 : 0}},
                       {"blocks", std::move(blocks)}});
}

RotarySpec rotary_from_json(const Json& j, const std::string& file, const std::string& place) {
  return RotaryReader(file, place).spec(j);
}

}  // namespace posenc::v0::detail
