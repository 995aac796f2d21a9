// SPDX-License-Identifier: Apache-2.0
// How many channels of a head turn, and how its pairs go to several axes.
#include <algorithm>
#include <cmath>

#include "model/hugging_face/rotary_definition/writer.h"

namespace posenc::inline v0::hf {

bool RotaryWriter::width(const Head& head) {
  const Value* fraction = dict_.find("partial_rotary_factor");
  Sourced<Index> w{head.rope_dim.value, Origin::derived, "the whole " + head.rope_dim.where};
  if (const auto v = assumed("rotary_dim")) {
    w = {whole_number(v->value).value_or(0), Origin::user, v->where};
  } else if (!rules().width.empty()) {
    const auto own = view_.integer(rules().width, 1, 65536, true);
    if (!own) return false;
    w = *own;
  } else if (rules().partial_is_mla) {
    return latent_width(head, fraction);
  } else if (fraction && !fraction_width(head, *fraction, w)) {
    return false;
  }
  if (w.origin == Origin::derived && odd_width(head, w.value)) {
    odd_ = w.value++;
    w.where += ", rounded up: the table has a pair more than half of it";
  }
  if (w.value < 2 || w.value % 2 != 0 || w.value > head.q_dim.value - head.offset.value)
    return view_.error(
        "partial_out_of_range",
        {"the rotated width must be even and fit in the head of {}, got {}", head.q_dim.value,
         w.value},
        w, "state head_dim and the fraction so that an even number of channels rotates", w.value);
  out_.encoding.set("rotary_dim", w);
  pairs_ = w.value / 2;
  return true;
}

// int(head_dim * factor): truncated towards zero as Python does. Most classes obey it only where the
// type is not default.
bool RotaryWriter::fraction_width(const Head& head, const Value& fraction, Sourced<Index>& w) {
  const bool by_class = view_.rules().partial, obeyed = by_class || out_.type != "default";
  const bool null = fraction.value.is_null();
  if (null ? !obeyed : out_.type == "proportional") return true;
  const std::string name = ConfigView::name_in_file(fraction, "partial_rotary_factor");
  if (!fraction.value.is_number())
    return view_.must_be(name, "a number", fraction, "write a fraction from 0 to 1");
  const double f = fraction.value.as_number();
  const double product = static_cast<double>(head.rope_dim.value) * f;
  if (!(f > 0 && f <= 1) || !(product >= 1)) {
    report().add(obeyed ? Severity::error : Severity::warning, "partial_out_of_range",
                 message("{} must be above 0 and at most 1, got {}", name, fraction.value),
                 fraction.where, "write the fraction of the head that rotates", f);
    return !obeyed;
  }
  if (obeyed) w.value = static_cast<Index>(product);
  if (f == 1) return true;
  if (!obeyed) {
    view_.warn("partial_ignored",
               "{class} ignores partial_rotary_factor while rope_type is default and rotates the "
               "whole head (a scaled type would use it)",
               fraction, "remove the key, or use a class that reads it", f);
    return true;
  }
  w.where = message("int({} * {})", head.rope_dim.where, fraction.where);
  if (!by_class && !view_.rules().head.starts_with("latent"))
    view_.warn("partial_conflict",
               "the table covers int(head_dim * partial_rotary_factor) channels, but the attention "
               "of {class} multiplies the whole head by it and fails; with rope_type default it "
               "ignores the fraction",
               fraction, "remove partial_rotary_factor", f);
  return true;
}

// Mistral-4 cuts the whole head by the fraction, and it must come to the turned part.
bool RotaryWriter::latent_width(const Head& head, const Value* fraction) {
  const Index rope = head.rope_dim.value;
  const double f = number_of(fraction).value_or(1);
  const auto turned = static_cast<Index>(static_cast<double>(head.q_dim.value) * f);
  if (f > 0 && f <= 1 && turned == rope) {
    field("rotary_dim", derived(rope, message("int({} * fraction)", head.q_dim.where)));
    pairs_ = rope / 2;
    return true;
  }
  return view_.error(
      "partial_conflict",
      {"the table covers {} channels of the head of {}, and qk_rope_head_dim is {}: the attention "
       "fails",
       turned, head.q_dim.value, rope},
      fraction ? fraction->where : place("partial_rotary_factor"),
      "state partial_rotary_factor as qk_rope_head_dim / (qk_nope_head_dim + qk_rope_head_dim)", f);
}

// An odd int(head_dim * fraction): the table has ceil(d / 2) pairs with exponents over d, and a
// class that splits heads by its table turns one channel more. Of the scalings only those that take
// frequencies one by one fit such a table.
bool RotaryWriter::odd_width(const Head& head, Index w) const {
  return w > 1 && w % 2 != 0 && view_.rules().splits_by_table && type_->pair_by_pair &&
         !view_.rules().mrope && w + 1 <= head.q_dim.value - head.offset.value;
}

// The frequencies of an odd width, theta^(-2i / d) for ceil(d / 2) pairs.
void RotaryWriter::odd_frequencies() {
  if (odd_ == 0) return;
  Json::Array values;
  for (Index i = 0; i < pairs_; ++i)
    values.emplace_back(std::pow(base_, -2 * static_cast<double>(i) / static_cast<double>(odd_)));
  out_.encoding.begin("frequencies");
  field("values", derived(Json(std::move(values)), message("rope_theta^(-2i / {})", odd_)));
}

// HunYuan-VL: sections of half the head, under an older name too.
bool RotaryWriter::xd_sections(const Head& head) {
  for (const auto& [from, to] : rules().aliases.pairs) {
    const Value *sections = dict_.find(to), *old = dict_.find(from);
    if (old && sections && old->value != sections->value)
      return view_.error(
          "both_spellings",
          {"{} is {} and {} {}: {class} refuses the file", from, old->value, to, sections->value},
          *old);
    if (!sections || sections->value.is_null()) continue;
    Index sum = 0;
    bool fine = sections->value.is_array();
    if (fine)
      for (const Json& n : sections->value.as_array()) {
        const auto whole = whole_number(n);
        fine = fine && whole && *whole >= 0 && *whole <= 65536 && sum <= 65536;
        if (fine) sum += *whole;
      }
    if (!fine || sum != head.q_dim.value / 2)
      return view_.error("sections_sum",
                         {"{} must be whole numbers that add up to half the head, {}, got {}", to,
                          head.q_dim.value / 2, sections->value},
                         *sections, "", sum);
  }
  return true;
}

// The pairs of each axis: of the file, of the class, or half each; none after a finding.
std::optional<Value> RotaryWriter::sections() {
  const MropeRules& rule = *view_.rules().mrope;
  const bool halves = rule.sections.is_null();  // two axes that share the pairs
  Value v = halves ? derived(Json::array({pairs_ / 2, pairs_ / 2}), "half of the pairs each")
                   : view_.of_class(rule.sections);
  if (const auto user = report().assumed("sections"))
    v = *user;
  else if (const Value* found = dict_.find("mrope_section"); found && !halves)
    v = *found;
  else if (halves && pairs_ % 2 != 0)
    v.value = nullptr;
  const auto is_count = [](const Json& x) {
    return x.is_integer() && x.as_integer() >= 0 && x.as_integer() < 65536;
  };
  if (v.value.is_array() && v.value.as_array().size() == (halves ? 2 : 3) &&
      std::ranges::all_of(v.value.as_array(), is_count))
    return v;
  if (halves)
    return view_.wrong_type(
        {"two axes share the rotated channels, which must be a multiple of 4, got {}", 2 * pairs_},
        place("partial_rotary_factor"), "state another fraction");
  return view_.wrong_type({"mrope_section must be three whole numbers, got {}", v.value}, v,
                          "write pairs for time, height, width");
}

bool RotaryWriter::mrope() {
  const MropeRules& rule = *view_.rules().mrope;
  auto v = sections();
  if (!v) return false;
  Index sum = 0;
  for (const Json& x : v->value.as_array()) sum += x.as_integer();
  const Index pairs = pairs_;
  if (rule.layout == "interleaved" && sum > 0) {
    // Height takes every third pair from 1 on, width from 2 on, as many as it says and there are;
    // what they leave follows time.
    const auto& list = v->value.as_array();
    const Index height = std::min(list[1].as_integer(), (pairs + 1) / 3);
    const Index width = std::min(list[2].as_integer(), pairs / 3);
    const Index time = pairs - height - width;
    if (sum != pairs || time != list[0].as_integer()) {
      view_.warn(
          "sections_sum",
          {"mrope_section is {}, and {} pairs rotate: {} follow height, {} width, the rest time",
           v->value, pairs, height, width},
          *v, "", sum);
      v = derived(Json::array({Json(time), Json(height), Json(width)}),
                  v->where + ", every third pair");
      sum = pairs;
    }
  }
  if (sum != pairs)
    return view_.error("sections_sum",
                       {"mrope_section adds up to {}, and {} pairs rotate", sum, pairs}, *v, "",
                       sum);
  field("sections", *v);
  field("layout", view_.of_class(Json(rule.layout)));
  if (const Value* said = dict_.find("mrope_interleaved");
      said && said->value.is_bool() && said->value.as_bool() != (rule.layout == "interleaved"))
    view_.warn("key_ignored",
               {"mrope_interleaved is not read: {class} always uses the {} layout", rule.layout},
               *said, "use the class whose layout is meant");
  return true;
}

}  // namespace posenc::v0::hf
