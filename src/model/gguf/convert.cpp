// SPDX-License-Identifier: Apache-2.0
// A config.json as llama.cpp would see it: the metadata and rope tensors that its converter writes
// (convert_hf_to_gguf.py at 0c1e57098). data/gguf_conversion.json says which classes write what;
// other model types are refused by name.
#include "model/gguf/convert.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "model/gguf/made_file.h"
#include "model/hugging_face/rope_dictionary/rope_set.h"
#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::data {
extern const std::string_view gguf_conversion;
}

namespace posenc::inline v0::hf {

const Json& gguf_conversions() {
  static const Json table = parse_json(data::gguf_conversion, "gguf_conversion.json");
  return table;
}

namespace {

constexpr Index kMost = Index{1} << 31;

class Converter {
 public:
  Converter(ConfigView view, const Json& rule, gguf::MadeFile& out)
      : view_(std::move(view)), rule_(rule), arch_(rule.at("arch").as_string()), out_(out) {}

  // False after a finding.
  bool run() {
    text("general.architecture", arch_);
    if (!sizes() || !heads()) return false;
    if (writes("encoder")) out_.add(key("attention.causal"), GgufType::boolean, false);
    if (writes("type_none")) text(key("rope.scaling.type"), "none");
    if (writes("alibi")) alibi();
    if (writes("buckets")) buckets();
    return rotary();
  }

 private:
  bool writes(std::string_view what) const {
    const Json::Array& keys = rule_.at("keys").as_array();
    return std::ranges::any_of(keys, [&](const Json& k) { return k.as_string() == what; });
  }
  std::string key(std::string_view name) const { return arch_ + "." + std::string(name); }
  void text(std::string name, std::string_view value) {
    out_.add(std::move(name), GgufType::string, value);
  }
  void number(std::string_view name, Index value) {
    out_.add(key(name), GgufType::u32,
             static_cast<std::uint64_t>(static_cast<std::uint32_t>(value)));
  }
  void real(std::string_view name, double value) {
    out_.add(key(name), GgufType::f32, static_cast<double>(static_cast<float>(value)));
  }
  // A whole number of the config under a key of the file; false where it is required and missing.
  bool copy(std::string_view name, std::string_view from, Index low, Index high,
            bool required = true) {
    const auto v = view_.integer(from, low, high, required);
    if (v) number(name, v->value);
    return v || !required;
  }

  bool sizes() {
    const bool layers = copy("block_count", "num_hidden_layers", 0, 100'000);
    const bool width = copy("embedding_length", "hidden_size", 1, 100'000'000);
    auto context = view_.integer("max_position_embeddings", 1, kMost);
    if (const Json* other = rule_.find("context"))
      if (const auto own = view_.integer(other->as_string(), 1, kMost)) context = own;
    if (context || writes("buckets"))  // 512: the converter's own default for T5
      number("context_length", context ? context->value : 512);
    return layers && width;
  }

  bool heads() {
    const auto count = view_.integer("num_attention_heads", 1, 1'000'000, true);
    if (!count) return false;
    number("attention.head_count", count->value);
    if (writes("latent")) return latent();
    if (writes("kv")) {
      const auto kv = view_.integer("num_key_value_heads", 1, 1'000'000);
      number("attention.head_count_kv", kv ? kv->value : count->value);
    }
    const auto stated = view_.value("head_dim");
    const auto head = head_of(view_, "full_attention");
    if (!head) return false;
    head_ = head->q_dim.value;
    const bool own = stated && !stated->value.is_null();
    if (writes("head_always") || writes("buckets") || (writes("head") && own))
      number("attention.key_length", head_);
    if (writes("width")) number("rope.dimension_count", head_);
    return true;
  }

  bool latent() {
    const auto nope = view_.integer("qk_nope_head_dim", 0, 65536, true);
    const auto rope = view_.integer("qk_rope_head_dim", 2, 65536, true);
    const auto rank = view_.integer("kv_lora_rank", 1, 1'000'000, true);
    if (!nope || !rope || !rank) return false;
    number("attention.head_count_kv", 1);
    number("attention.key_length", rank->value + rope->value);
    number("attention.kv_lora_rank", rank->value);
    number("attention.key_length_mla", nope->value + rope->value);
    number("rope.dimension_count", rope->value);
    head_ = rope->value;
    return true;
  }

  void alibi() {
    double bias = 8;  // the converter writes alibi_bias_max, or 0 without ALiBi
    if (const auto v = view_.stated("attn_config"); v && v->value.is_object()) {
      if (const Json* most = v->value.find("alibi_bias_max"); most && most->is_number())
        bias = most->as_number();
      if (const Json* on = v->value.find("alibi"); on && !truthy(*on)) bias = 0;
    }
    real("attention.max_alibi_bias", bias);
  }

  void buckets() {
    constexpr const char* decoder = "decoder_block_count";
    copy("attention.relative_buckets_count", "relative_attention_num_buckets", 1, 65536, false);
    const auto own = view_.integer("num_decoder_layers", 0, 100'000);
    if (own)
      number(decoder, own->value);
    else
      copy(decoder, "num_hidden_layers", 0, 100'000, false);
  }

  bool rotary() {
    if (!view_.rules().rotates()) return true;
    const RopeSet set = standardise_rope(view_, {"full_attention", "sliding_attention"});
    const RopeSet::Part* part = set.find("full_attention");
    if (!part || !part->turns) return !set.parts.empty();
    const Dict& d = part->dict;
    const auto theta = number_of(d.find("rope_theta"));
    if (!theta)
      return view_.error("wrong_type", "rope_theta must be a number", view_.where("rope_theta"),
                         "state rope_theta");
    base_ = *theta;
    if (writes("base")) real("rope.freq_base", base_);
    const auto* local = set.find("sliding_attention");
    if (writes("swa_base") && local)
      if (const auto base = given(local->dict, "rope_theta")) real("rope.freq_base_swa", *base);
    if (writes("window")) {
      const auto n = view_.integer("sliding_window", 0, kMost);
      if (n || writes("longrope")) number("attention.sliding_window", n ? n->value : 0);
    }
    if (writes("partial") && !fraction(d)) return false;
    if (writes("sections")) sections(d);
    return scaling(d);
  }

  bool fraction(const Dict& d) {
    const Value* f = d.find("partial_rotary_factor");
    const double part = number_of(f).value_or(1.0);
    if (!(part > 0 && part <= 1))
      return view_.error("partial_out_of_range", "the fraction must be above 0 and at most 1",
                         f ? f->where : view_.where(), "write the fraction that rotates", part);
    number("rope.dimension_count", static_cast<Index>(part * static_cast<double>(head_)));
    return true;
  }

  void sections(const Dict& d) {
    const Value* v = d.find("mrope_section");
    if (!v || !v->value.is_array()) return;
    const Json::Array& stated = v->value.as_array();
    std::vector<std::int32_t> four(4, 0);
    for (std::size_t i = 0; i < std::min<std::size_t>(4, stated.size()); ++i)
      if (stated[i].is_integer()) four[i] = static_cast<std::int32_t>(stated[i].as_integer());
    out_.add(key("rope.dimension_sections"), four);
  }

  std::optional<double> given(const Dict& d, std::string_view name) const {
    const auto n = number_of(d.find(name));
    return n && std::isfinite(*n) ? n : std::nullopt;
  }
  // The dictionary as the file has it: the converter's own requirements pin transformers 4.57.6, which
  // fills nothing in.
  const Json* written() const {
    for (const char* key : {"rope_parameters", "rope_scaling"})
      if (const Json* d = view_.object().find(key); d && d->is_object()) {
        const Json* full = d->find("full_attention");
        return full && full->is_object() ? full : d;
      }
    return nullptr;
  }
  // The original length: the inner one counts before the one beside it, the class's too
  // (transformers 5 takes the one beside first). A number of tokens that fits a u32; none where there
  // is none, or after a finding.
  std::optional<double> length_of(const std::string& type, std::optional<double> otherwise = {}) {
    constexpr const char* kOriginal = "original_max_position_embeddings";
    const Json* inside = written() ? written()->find(kOriginal) : nullptr;
    const auto beside = view_.value(kOriginal);
    if (!inside && !beside && otherwise) {
      view_.warn("missing_key",
                 {"{} is missing: the converter takes {}, transformers max_position_embeddings",
                  kOriginal, *otherwise},
                 view_.where("rope_scaling"), {"state {}", kOriginal}, *otherwise);
      return otherwise;
    }
    if (inside && beside && beside->origin == Origin::stated && *inside != beside->value)
      view_.warn(
          "both_spellings",
          {"{} is {} inside the scaling and {} beside it: the converter takes the inner one, "
           "transformers 5 the one beside",
           kOriginal, *inside, beside->value},
          *beside, "keep the one that is right", number_of(*inside));
    const auto v = inside ? number_of(*inside) : number_of(beside);
    if (v && *v >= 1 && *v < 4294967296.0) return v;
    (void)lacks(kOriginal, type);
    return std::nullopt;
  }
  bool lacks(std::string_view name, const std::string& type) {
    return view_.error("missing_key", {"the converter needs {} for {}", name, type},
                       view_.where("rope_scaling") + "/" + std::string(name), {"state {}", name});
  }

  bool scaling(const Dict& d) {
    const std::string type = rope_type(d).value_or("default");
    if (type == "default") return true;
    if (type == "llama3" && writes("llama3")) return llama3(d);
    if (type == "longrope" && writes("longrope")) return longrope(d);
    const auto factor = given(d, "factor");
    if (writes("scaling") && type == "linear" && factor) {
      text(key("rope.scaling.type"), "linear");
      real("rope.scaling.factor", *factor);
      return true;
    }
    if (writes("scaling") && type == "yarn" && factor) return yarn(d, *factor);
    if (type == "dynamic" || ((type == "linear" || type == "yarn") && !writes("scaling"))) {
      view_.warn(
          "gguf_lost",
          {"the converter does not write rope_type {} for {class}: llama.cpp does not scale", type},
          view_.where("rope_scaling"), "use another program for long contexts");
      return true;
    }
    return view_.error(
        "unknown_rope_type",
        {"it is not known what llama.cpp's converter makes of rope_type {} for {class}", type},
        view_.where("rope_scaling"), "convert the model and read the GGUF file itself");
  }

  bool yarn(const Dict& d, double factor) {
    const auto length = length_of("yarn");
    if (!length) return false;
    text(key("rope.scaling.type"), "yarn");
    real("rope.scaling.factor", factor);
    number("rope.scaling.original_context_length", static_cast<Index>(*length));
    for (const char* beta : {"beta_fast", "beta_slow"})
      if (const auto b = given(d, beta)) real(std::string("rope.scaling.yarn_") + beta, *b);
    if (writes("latent"))
      if (const auto all = given(d, "mscale_all_dim"))
        real("rope.scaling.yarn_log_multiplier", 0.1 * *all);
    return true;
  }

  // Divisors of the frequencies, reference 4.7; a number that is missing is Llama-3.1's.
  bool llama3(const Dict& d) {
    const auto or_default = [&](const char* name, double otherwise) {
      return d.find(name) ? given(d, name) : otherwise;
    };
    const auto s = or_default("factor", 8), lo = or_default("low_freq_factor", 1),
               hi = or_default("high_freq_factor", 4);
    if (!s || !lo || !hi) return lacks("factor, low_, high_freq_factor", "llama3");
    const auto length = length_of("llama3", 8192);
    if (!length) return false;
    std::vector<float> divisors;
    for (Index i = 0; i < head_ / 2; ++i) {
      const double theta =
          std::pow(base_, -2.0 * static_cast<double>(i) / static_cast<double>(head_));
      const double wave = 2 * std::numbers::pi / theta;
      const double smooth = (*length / wave - *lo) / (*hi - *lo);
      const double by = wave < *length / *hi   ? 1
                        : wave > *length / *lo ? *s
                                               : 1 / ((1 - smooth) / *s + smooth);
      divisors.push_back(static_cast<float>(by));
    }
    out_.add_tensor("rope_freqs.weight", divisors);
    return true;
  }

  bool longrope(const Dict& d) {
    const auto original = length_of("longrope");
    const auto longest = view_.integer("max_position_embeddings", 1, std::int64_t{1} << 31, true);
    if (!original || !longest) return false;
    number("rope.scaling.original_context_length", static_cast<Index>(*original));
    const double ratio = static_cast<double>(longest->value) / *original;
    real("rope.scaling.attn_factor",
         ratio > 1 ? std::sqrt(1 + std::log(ratio) / std::log(*original)) : 1);
    for (const auto& [name, tensor] :
         {std::pair<const char*, const char*>{"long_factor", "rope_factors_long.weight"},
          {"short_factor", "rope_factors_short.weight"}}) {
      const Value* v = d.find(name);
      if (!v || !v->value.is_array()) return lacks(name, "longrope");
      std::vector<float> values;
      for (const Json& x : v->value.as_array())
        values.push_back(x.is_number() ? static_cast<float>(x.as_number()) : 0.0F);
      out_.add_tensor(tensor, values);
    }
    return true;
  }

  const ConfigView view_;
  const Json& rule_;
  const std::string& arch_;
  gguf::MadeFile& out_;
  Index head_ = 0;
  double base_ = 10000;
};

}  // namespace

ModelSpec read_as_llama_cpp(const Json& config, const std::string& file, const std::string& name,
                            const ReadOptions& options) {
  ModelSpec spec;
  spec.reader = "llama_cpp";
  Report report(name);
  const Json* type = config.find("model_type");
  if (type && type->is_string()) spec.model_type = type->as_string();
  const Json* text = config.find("text_config");
  const bool nested = text && text->is_object();
  const Json* inner = nested ? text->find("model_type") : nullptr;
  const std::string own = inner && inner->is_string() ? inner->as_string() : spec.model_type;
  const Json& rules = gguf_conversions().at("model_types");
  const Json* rule = rules.find(spec.model_type);
  if (!rule) rule = rules.find(own);
  const ClassRules* known = class_rules(own);
  for (const char* part : {"_text", ""})
    if (!known || known->scheme.empty()) known = class_rules(spec.model_type + part);
  gguf::MadeFile made(name);
  // Where both are in the file the converter takes rope_parameters, a null one too.
  Json object = nested ? *text : config;
  if (object.find("rope_parameters"))
    std::erase_if(object.as_object(), [](const auto& m) { return m.first == "rope_scaling"; });
  if (!rule || !known || known->scheme.empty()) {
    report.error(
        "layout_not_covered",
        {"it is not known what llama.cpp's converter makes of model_type {}",
         type ? shown(*type) : std::string("(missing)")},
        name + "#/model_type",
        "convert the model and read the GGUF file itself, or read the config as transformers does");
  } else if (Converter({object, nested ? "/text_config" : "", *known, report}, *rule, made).run()) {
    ReadOptions inside = options;
    inside.reader.clear();
    spec = gguf::read_file(made.file(), inside);
    report.add(spec.findings);
    report.note("converted",
                "read as llama.cpp reads this model after conversion: places are keys of that GGUF "
                "file, not of the config",
                name, "nothing to do; convert the model for the file itself");
  }
  spec.file = file;
  spec.findings = report.take();
  return spec;
}

}  // namespace posenc::v0::hf
