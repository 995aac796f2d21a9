// SPDX-License-Identifier: Apache-2.0
// Which positions a model uses, for a person.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "append.h"
#include "posenc/model/read.h"
#include "posenc/report/doctor.h"
#include "posenc/report/explain.h"
#include "posenc/report/text.h"

namespace posenc::report {
namespace {

// Layers that print the same are one group: "layers 0-4, 6-10".
struct Group {
  std::vector<Index> layers;
  std::string text;
};

std::string ranges(const std::vector<Index>& v) {
  std::string s;
  for (std::size_t i = 0; i < v.size();) {
    std::size_t j = i;
    while (j + 1 < v.size() && v[j + 1] == v[j] + 1) ++j;
    if (!s.empty()) s += ", ";
    s += i == j ? fmt::format("{}", v[i]) : fmt::format("{}-{}", v[i], v[j]);
    i = j + 1;
  }
  return s;
}

std::string attention_text(AttentionSpec a) {
  if (const auto mask = std::exchange(a.by_token_type, std::nullopt)) {
    a.right = 0;
    return fmt::format("{}; tokens of {} see each other, later ones too", attention_text(a),
                       mask->tokens);
  }
  switch (a.kind) {
    case AttentionKind::full:
      return a.right && *a.right == 0 ? "sees every earlier token" : "sees every token";
    case AttentionKind::sliding:
      if (a.left && a.right && *a.right == 0)
        return fmt::format("sliding window: itself and {} tokens back", with_commas(*a.left));
      return fmt::format("sliding window: {} back, {} ahead", a.left ? with_commas(*a.left) : "all",
                         a.right ? with_commas(*a.right) : "all");
    case AttentionKind::chunked:
      return fmt::format("chunks of {} tokens", a.chunk ? with_commas(*a.chunk) : "?");
    case AttentionKind::linear:
      return "no softmax attention (linear or state-space layer)";
    case AttentionKind::none:
      return "no attention";
  }
  return "";
}

std::string rotary_text(const RotarySpec& r) {
  std::string s;
  for (const RotaryBlock& b : r.blocks) {
    const std::vector<double>& f = b.spectrum.frequency;
    double slowest = 0;
    Index still = 0;
    const Index pairs = b.pairs();
    for (Index i = 0; i < pairs; ++i) {
      double sum = 0;
      for (Index a = 0; a < b.spectrum.heads * b.spectrum.axes; ++a)
        sum = std::max(sum, std::abs(f[static_cast<std::size_t>(a * pairs + i)]));
      if (sum == 0)
        ++still;
      else if (slowest == 0 || sum < slowest)
        slowest = sum;
    }
    s += fmt::format("      rotates channels {}-{} of {}, {}{}{}\n", b.offset,
                     b.offset + b.width() - 1, r.head_dim,
                     b.pairing == Pairing::interleaved ? "interleaved pairs" : "half-split pairs",
                     b.direction < 0 ? ", clockwise" : "",
                     b.spectrum.axes > 1 ? fmt::format(", {} position axes", b.spectrum.axes) : "");
    if (slowest > 0)
      s += fmt::format("      slowest pair: one rotation in {} positions{}\n",
                       short_number(std::round(2 * std::numbers::pi / slowest)),
                       still ? fmt::format("; {} of {} pairs never rotate", still, pairs) : "");
    if (b.spectrum.gain != 1)
      s += fmt::format("      cos and sin times {} (attention factor)\n",
                       short_number(b.spectrum.gain, 8));
  }
  return s;
}

// Lists of more than eight numbers are cut: --json and --layer have them whole.
std::string without_long_lists(const std::string& text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t open = text.find('[', at), close = text.find(']', open);
    if (open == std::string::npos || close == std::string::npos) return out + text.substr(at);
    const std::string list = text.substr(open, close + 1 - open);
    const auto commas = std::count(list.begin(), list.end(), ',');
    out += text.substr(at, open - at);
    if (commas < 8) {
      out += list;
    } else {
      std::size_t end = 0;
      for (int i = 0; i < 3; ++i) end = list.find(',', end + 1);
      out += fmt::format("{},.. {} numbers]", list.substr(0, end), commas + 1);
    }
    at = close + 1;
  }
  return out;
}

// Theta as a person writes it, when it is one number.
std::string theta_text(const LayerSpec& l) {
  const FieldValue* base = l.field("base");
  if (!l.rotary || !base || !base->value.is_number()) return "";
  const double theta = base->value.as_number();
  return fmt::format("      theta {}\n", theta >= 1e15 || theta != std::floor(theta)
                                             ? short_number(theta, 8)
                                             : with_commas(static_cast<Index>(theta)));
}

std::string layer_text(const LayerSpec& l, bool positions_at_input) {
  std::string s;
  if (l.encodings.empty()) {
    if (l.has_scheme() && !l.scheme.empty() && !positions_at_input)
      s += fmt::format("      positions act in the score: {}\n", l.scheme);
    else if (positions_at_input)
      s += "      q and k are not rotated\n";
    else  // the word is one of attention
      s += l.attention.kind == AttentionKind::none ? "      no position encoding\n"
                                                   : "      no position encoding (NoPE)\n";
  }
  for (const auto& e : l.encodings)
    s += fmt::format("      {}\n", without_long_lists(to_text(e.value)));
  if (l.rotary) s += theta_text(l) + rotary_text(*l.rotary);
  s += fmt::format("      {}\n", attention_text(l.attention));
  const std::vector<Requirement> besides = must_honour(l);
  if (!besides.empty()) s += "      an engine must also:\n";
  for (const Requirement& r : besides) s += fmt::format("        {}\n", r.text);
  return s;
}

std::string where_text(const LayerSpec& l) {
  std::string s;
  for (const FieldValue& f : l.fields)
    s += fmt::format("        {:<28} {:<22} {:<13} {}\n", f.name, f.value.dump().substr(0, 60),
                     enum_text(f.origin), f.where);
  return s;
}

std::vector<Group> groups(const std::vector<LayerSpec>& layers, bool positions_at_input) {
  std::vector<Group> out;
  for (const LayerSpec& l : layers) {
    const std::string text = layer_text(l, positions_at_input);
    auto it = out.begin();
    while (it != out.end() && it->text != text) ++it;
    if (it == out.end()) it = out.insert(it, {{}, text});
    it->layers.push_back(l.index);
  }
  return out;
}

void add_layers(std::string& text, const std::vector<LayerSpec>& layers, const Style& style,
                bool details, bool positions_at_input) {
  for (const Group& g : groups(layers, positions_at_input)) {
    append(text, "  {} {}\n{}", style.bold(g.layers.size() == 1 ? "layer" : "layers"),
           style.bold(ranges(g.layers)), g.text);
    if (!details) continue;
    for (const LayerSpec& l : layers)
      if (l.index == g.layers.front())
        append(text, "      where each value comes from:\n{}", where_text(l));
  }
}

// The scheme, and below it what a program has to know beside it.
void add_input(std::string& text, const std::vector<InputEncoding>& input) {
  for (const InputEncoding& e : input) {
    append(text, "  at the input: {} ({})\n", to_text(e.value), e.where);
    std::vector<std::string> about;
    if (e.positions && e.image_prefix)
      about.push_back(fmt::format("{} rows: {}patches row by row", with_commas(*e.positions),
                                  *e.image_prefix > 0
                                      ? fmt::format("{} in front, then ", *e.image_prefix)
                                      : std::string()));
    else if (e.positions && *e.positions > 0)
      about.push_back(fmt::format("positions 0 to {}", with_commas(*e.positions - 1)));
    else if (std::holds_alternative<Sinusoidal>(e.value.scheme))
      about.push_back("any position");
    if (e.grid && !e.grid->of_model())
      about.push_back("cells of each image row by row (table --grid HxW)");
    const auto* axes = std::get_if<LearnedAxes>(&e.value.scheme);
    if (axes && !axes->flat && !e.grid)
      about.push_back(fmt::format("a token has {} coordinates", axes->shape.size()));
    else if (!e.image_prefix && !std::holds_alternative<Boxes>(e.value.scheme))
      about.push_back(e.counts == PositionRule::arange ? "every slot counts, padding too"
                      : e.counts == PositionRule::mask ? "what the mask shows counts"
                                                       : "tokens that are not padding count");
    if (e.padding_row) about.push_back(fmt::format("padding reads row {}", *e.padding_row));
    std::vector<std::string> names = e.tensors;
    names.erase(std::unique(names.begin(), names.end()), names.end());
    if (!names.empty())
      about.push_back(fmt::format("tensor {}{}", fmt::join(names, ", "),
                                  names.size() < e.tensors.size() ? " (all tables)" : ""));
    if (!about.empty()) append(text, "      {}\n", fmt::join(about, "; "));
  }
}

void add_head(std::string& text, const ModelSpec& m, const Style& style) {
  Index turned = 0;
  for (const LayerSpec& l : m.layers) turned += l.rotary ? 1 : 0;
  const std::string context = m.context.value > 0
                                  ? style.bold(with_commas(m.context.value)) + " tokens of context"
                                  : "no longest context is stated";
  append(text, "{}  {}\n", style.bold(m.model_type.empty() ? "model" : m.model_type), context);
  append(text, "  {} layers, {} with rotary positions; read as {} does, from {}\n", m.layers.size(),
         turned, m.reader, m.file);
  add_input(text, m.input);
}

// What positions cost in memory: cached keys, and a table of cosine and sine if one is kept.
void add_memory(std::string& text, const ModelSpec& m, const Style& style) {
  const Json json =  // of one layer: the memory is that of all
      explain_json(m, m.layers.empty() ? std::nullopt : std::optional(m.layers.front().index));
  const Json& memory = json.at("memory");
  const Json &token = memory.at("key_cache_bytes_per_token"),
             &all = memory.at("key_cache_bytes_at_context");
  if (token.is_number() && token.as_number() > 0)
    append(text, "\n  {} {} a token{} ({} bytes a number)\n", style.bold("cached keys"),
           bytes_text(token.as_number()),
           all.is_number() ? fmt::format(", {} for the whole context", bytes_text(all.as_number()))
                           : "",
           memory.at("key_cache_element").at("bytes").as_integer());
  const double table = memory.at("table_bytes_at_context").as_number();
  if (table > 0)
    append(text, "  {} {} as a float32 table of the context, {} without a table\n",
           style.bold("cos and sin"), bytes_text(table),
           bytes_text(memory.at("table_free_bytes").as_number()));
}

}  // namespace

std::string explain_text(const ModelSpec& m, std::optional<Index> layer, const Style& style) {
  std::string text;
  const bool at_input = !m.input.empty();
  add_head(text, m, style);
  text += "\n";
  if (layer)
    add_layers(text, {m.layers.at(static_cast<std::size_t>(*layer))}, style, true, at_input);
  else
    add_layers(text, m.layers, style, false, at_input);
  if (!layer) add_memory(text, m, style);
  for (const Tower& t : m.towers) {
    append(text, "\n  {}{}, {} layers\n", style.bold(t.name), t.name == "encoder" ? "" : " tower",
           t.layers.size());
    add_input(text, t.input);
    add_layers(text, t.layers, style, false, !t.input.empty());
  }
  if (!m.findings.empty()) text += "\n" + findings_text(m.findings, style);
  if (!layer)
    append(text, "\n  {}\n",
           style.dim("--layer N shows where each value comes from; --json has everything"));
  return text;
}

}  // namespace posenc::report
