// SPDX-License-Identifier: Apache-2.0
// What an engine must do for a layer besides rotating q and k: what the fields of a LayerSpec say
// one by one, as one list.
#include <algorithm>
#include <cmath>

#include "model/diagnostics.h"
#include "posenc/core/error.h"
#include "posenc/model/spec.h"

namespace posenc::inline v0 {
namespace {

using Requirements = std::vector<Requirement>;

std::string formula(const QueryTemperature& t) {
  if (t.form == TemperatureForm::log_n) return message("max(1, ln(p + 1) / ln({}))", t.period);
  if (t.form == TemperatureForm::log_floor)
    return message("1 + {} ln(max(1, (p + 1) / {}))", t.beta, t.period);
  const char* count = t.form == TemperatureForm::llama4 ? "(p + 1)" : "p";
  return message("1 + {} ln(1 + floor({} / {}))", t.beta, count, t.period);
}

// In the order of NormKind.
constexpr std::string_view kNorms[] = {"RMS norm", "LayerNorm", "division by the L2 norm",
                                       "a limit of the L2 norm"};

// What the norm is over; channels: of one such vector, none where the layer does not say.
std::string span_text(const QkNorm& n, const std::optional<Index>& channels) {
  if (n.over == NormSpan::all_heads) return "all heads at once";
  return message("{}{}", n.over == NormSpan::head ? "each head" : "the rotated channels",
                 channels ? message(" of {}", *channels) : "");
}

std::string weights_text(const QkNorm& n) {
  if (n.weights == NormWeights::none) return ", no weights";
  if (n.weights == NormWeights::shared) return n.plus_one ? ", 1 is added to its weights" : "";
  return message(
      "{}{}",
      n.weights == NormWeights::keys ? ", only k has weights" : ", each head has its own weights",
      n.plus_one ? " (1 is added to each)" : "");
}

void add_norm(const LayerSpec& layer, Requirements& out) {
  if (!layer.qk_norm) return;
  const QkNorm& n = *layer.qk_norm;
  const bool rotates = layer.rotary && !layer.rotary->blocks.empty();
  std::optional<Index> channels;
  if (rotates && n.over == NormSpan::head) channels = layer.rotary->head_dim;
  if (rotates && n.over == NormSpan::rotated) channels = layer.rotary->blocks.front().width();
  const char* of = n.keys_only ? "k" : "q and k";
  std::string text = message("normalise {}: {} over {}", of,
                             kNorms[static_cast<std::size_t>(n.kind)], span_text(n, channels));
  if (rotates) text += n.after_rotation ? ", after the rotation" : ", before the rotation";
  text += weights_text(n);
  const bool limited = n.kind == NormKind::l2_clip;
  if (limited) text += ", at most " + number_text(n.threshold);
  if (n.eps) text += ", eps " + number_text(*n.eps);
  if (!n.eps_key.empty()) text += n.eps ? " (" + n.eps_key + ")" : ", eps of " + n.eps_key;
  if (!n.note.empty()) text += "; " + n.note;
  const Json when = rotates ? Json(n.after_rotation ? "after" : "before") : Json(nullptr);
  Json value = Json::object({{"kind", enum_text(n.kind)},
                             {"over", enum_text(n.over)},
                             {"channels", channels ? Json(*channels) : Json(nullptr)},
                             {"rotation", when},
                             {"of", of},
                             {"weights", enum_text(n.weights)},
                             {"plus_one", n.plus_one},
                             {"eps", n.eps ? Json(*n.eps) : Json(nullptr)},
                             {"eps_key", n.eps_key.empty() ? Json(nullptr) : Json(n.eps_key)},
                             {"note", n.note.empty() ? Json(nullptr) : Json(n.note)}});
  if (limited) value.set("threshold", n.threshold);
  out.push_back({"qk_norm", std::move(value), std::move(text)});
}

// Of the field `convolution`: y of token t is x of t and what the convolution makes of it and those before.
void add_convolution(const LayerSpec& layer, Requirements& out) {
  const FieldValue* field = layer.field("convolution");
  if (!field) return;
  const Json& c = field->value;
  const Json::Array& modules = c.at("modules").as_array();
  std::string text = message(
      "after their projections, add to k and v their causal convolution over {} tokens, each "
      "channel by itself, padding as zeros ({}, {})",
      c.at("tokens").as_integer(), modules.at(0).as_string(), modules.at(1).as_string());
  if (const Json& projection = c.at("projection"); !projection.is_null())
    text += ", with weights that " + projection.as_string() +
            " makes of the token's hidden state added to those of the channel";
  if (const double divisor = c.at("divisor").as_number(); divisor != 1)
    text += ", and divide by " + number_text(divisor);
  out.push_back({"convolution", c, std::move(text)});
}

// Frequencies that a rule of length chose hold for some lengths only.
void add_valid_range(const RotarySpec& spec, Requirements& out) {
  const Index from = spec.valid_from(), to = spec.valid_to();
  if (from <= 1 && to == kUnbounded) return;
  const bool open = to == kUnbounded;
  out.push_back(
      {"valid_range", Json::object({{"from", from}, {"to", open ? Json(nullptr) : Json(to)}}),
       message("take these frequencies for lengths of {}{}: at other lengths others take over",
               std::max<Index>(from, 1),
               open ? " tokens and more" : message(" to {} tokens", to))});
}

// "1 or 2"
std::string listed_numbers(const std::vector<Index>& numbers) {
  std::string out;
  for (const Index n : numbers) out += (out.empty() ? "" : " or ") + std::to_string(n);
  return out;
}

void add_window(const AttentionSpec& a, Requirements& out) {
  if (a.kind != AttentionKind::sliding && a.kind != AttentionKind::chunked) return;
  const auto side = [](const std::optional<Index>& n) { return n ? Json(*n) : Json(nullptr); };
  const auto keys = [](const std::optional<Index>& n) {
    return n ? std::to_string(*n) : std::string("all");
  };
  const bool chunked = a.kind == AttentionKind::chunked;
  out.push_back(
      {"window",
       Json::object({{"kind", enum_text(a.kind)},
                     {"left", side(a.left)},
                     {"right", side(a.right)},
                     {"chunk", side(a.chunk)}}),
       chunked ? message("mask keys outside the query's own chunk of {} tokens", keys(a.chunk))
               : message("mask keys but the query's own, {} before and {} after it", keys(a.left),
                         a.by_token_type ? "0" : keys(a.right))});
}

// Which tokens see each other, later ones too.
void add_token_mask(const AttentionSpec& a, Requirements& out) {
  if (!a.by_token_type) return;
  const TokenMask& m = *a.by_token_type;
  const bool limited = a.left && m.within_window;
  std::string text =
      message("except that tokens of {} see each other, later ones too ({} {}{})", m.tokens,
              m.input, listed_numbers(m.types), m.runs ? ", each run of them by itself" : "");
  if (a.left)
    text += limited ? message(", but no key more than {} before the query", *a.left)
                    : ", whatever the window";
  if (!a.left) text = "mask keys after the query, " + text;
  out.push_back({"mask_by_token_type",
                 Json::object({{"tokens", m.tokens},
                               {"input", m.input},
                               {"types", Json::Array(m.types.begin(), m.types.end())},
                               {"blocks", m.runs ? "runs" : "one"},
                               {"left", limited ? Json(*a.left) : Json(nullptr)},
                               {"right", nullptr}}),
                 std::move(text)});
}

// head_dim^-1/2, in whatever words.
bool is_usual(const ContentScale& s, const SharedRotary& rotary) {
  if (s == ContentScale{}) return true;
  if (!rotary) return false;
  const double usual = ContentScale{}.at(rotary->head_dim);
  return std::abs(s.at(rotary->head_dim) - usual) <= 1e-12 * usual;
}

void add_score_numbers(const LayerSpec& layer, Requirements& out) {
  if (const auto& s = layer.query_scale)
    out.push_back({"query_scale", Json::object({{"tensor", s->tensor}, {"factor", s->factor}}),
                   message("multiply channel c of q by {} / sqrt(head_dim) ln(1 + exp(t_c)), t the "
                           "tensor {}, for the score terms too",
                           s->factor, s->tensor)});
  if (layer.scale && !is_usual(*layer.scale, layer.rotary)) {
    const auto& [factor, power] = *layer.scale;
    out.push_back({"scale", Json::object({{"factor", factor}, {"head_dim_power", power}}),
                   message("multiply q.k by {}{}", factor,
                           power == 0      ? ", not by 1 / sqrt(head_dim)"
                           : power == -0.5 ? " / sqrt(head_dim)"
                                           : message(" * head_dim^{}", power))});
  }
  if (layer.softcap)
    out.push_back({"softcap", *layer.softcap,
                   message("cap the scores{} before the mask: {} tanh(score / {})",
                           layer.softcap_after_terms ? ", their position terms included," : "",
                           *layer.softcap, *layer.softcap)});
  if (!layer.sinks.empty())
    out.push_back({"sinks", layer.sinks,
                   message("count a learned score a head in the softmax, without a value ({})",
                           layer.sinks)});
  if (!layer.query_sinks.empty())
    out.push_back({"query_sinks", layer.query_sinks,
                   message("count in the softmax of each query and head a score without a value, a "
                           "projection of the query's hidden state ({})",
                           layer.query_sinks)});
}

void add_score_terms(const LayerSpec& layer, Requirements& out) {
  bool named = false;
  for (const auto& e : layer.encodings) {
    if (is_rotary(e.value.scheme)) continue;
    named = true;
    out.push_back({"score_term", to_text(e.value),
                   "add the terms of " + std::string(card(e.value.scheme).name) + " to the score"});
  }
  if (!named && !layer.rotary && layer.encodings.empty() && layer.has_scheme())
    out.push_back(
        {"score_term", layer.scheme, "add the terms of " + layer.scheme + " to the score"});
}

}  // namespace

std::vector<Requirement> must_honour(const LayerSpec& layer) {
  Requirements out;
  const bool rotates = layer.rotary && !layer.rotary->blocks.empty();
  if (rotates) add_valid_range(*layer.rotary, out);
  add_convolution(layer, out);
  add_norm(layer, out);
  if (layer.rotates_value) out.push_back({"rotates_value", true, "rotate values as keys"});
  if (const auto& t = layer.query_temperature)
    out.push_back(
        {"query_temperature",
         Json::object({{"form", enum_text(t->form)},
                       {"beta", t->beta},
                       {"period", t->period},
                       {"by", enum_text(t->by)}}),
         (t->by == TemperatureIndex::position
              ? "multiply the query at position p by "
              : "multiply query p of the row, padding counted and whatever its position, by ") +
             formula(*t)});
  if (rotates && layer.rotary->logit_factor() != 1)
    out.push_back({"logit_factor", layer.rotary->logit_factor(),
                   "multiply the softmax scale by " + number_text(layer.rotary->logit_factor())});
  add_score_numbers(layer, out);
  add_score_terms(layer, out);
  if (layer.query_step > 1)
    out.push_back(
        {"query_step", layer.query_step,
         message("take as queries only the tokens whose row and column on the grid of the "
                 "keys are multiples of {}",
                 layer.query_step)});
  add_window(layer.attention, out);
  add_token_mask(layer.attention, out);
  if (layer.unrotates_output)
    out.push_back({"unrotates_output", true, "rotate the attention output back, by -p"});
  return out;
}

std::optional<Finding> switch_length(const LayerSpec& layer) {
  const FieldValue* at = layer.rotary ? layer.field("longrope.original_context") : nullptr;
  if (!at || !at->value.is_number()) return std::nullopt;
  const double length = at->value.as_number();
  return Finding{Severity::note,
                 "switch_length",
                 message("LongRoPE changes all frequencies when the length passes {}: a key cache "
                         "made before does not fit after",
                         length),
                 at->where,
                 "declare the length once (switch_rule=declared), or drop the cache at the switch",
                 length};
}

// Equal layers have one place, so that each switch is noted once.
void note_switches(const std::vector<LayerSpec>& layers, Diagnostics& report) {
  for (const LayerSpec& layer : layers)
    if (auto f = switch_length(layer)) report.add(std::move(*f));
}

}  // namespace posenc::v0
