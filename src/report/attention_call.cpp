// SPDX-License-Identifier: Apache-2.0
#include "attention_call.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "posenc/absolute/initial.h"
#include "posenc/model/weights.h"

namespace posenc::report {

ScoreEncodings score_encodings(const Subject& s, const SubjectOptions& o,
                               const std::vector<std::string>& with) {
  ScoreEncodings e{.title = s.title};
  if (s.encoding) {
    e.texts.push_back(to_text(*s.encoding));
  } else {
    require_readable(*s.model);
    e.layer = &chosen_layer(*s.model, o);
    e.weights = s.model->weights;
    say_which(*s.model, o, *e.layer);
  }
  for (const std::string& text : with) e.texts.push_back(to_text(complete(text, o.sizes).encoding));
  return e;
}

ScoreEncodings bias_encodings(const Subject& s, const SubjectOptions& o) {
  ScoreEncodings e{.title = s.title};
  const auto keep = [&](const Encoding& x) {
    if (is_relative(x.scheme)) e.texts.push_back(to_text(x));
  };
  if (s.encoding) {
    keep(*s.encoding);
  } else {
    require_readable(*s.model);
    for (const LayerSpec& l : layers_of(*s.model, o)) {
      if (!e.texts.empty() || (o.layer && l.index != *o.layer)) continue;
      for (const Sourced<Encoding>& x : l.encodings) keep(x.value);
      e.layer = &l;
      e.weights = s.model->weights;
    }
    if (e.texts.empty() && e.layer != nullptr && e.layer->encodings.empty() &&
        e.layer->has_scheme())
      throw InputError(fmt::format(
          "{}: the settings of {} are not read from a model's file; a SCHEME must say them (posenc "
          "list {})",
          s.model->file, e.layer->scheme, e.layer->scheme));
  }
  if (e.texts.empty())
    throw InputError(fmt::format("\"{}\" adds nothing to the score{}", s.title,
                                 s.is_model() ? " in a layer that was asked for" : ""));
  return e;
}

AttentionPlan plan_of(const ScoreEncodings& e, const LayerAttention* layer,
                      const AttentionSizes& sizes, Index length) {
  if (layer == nullptr) {
    const std::vector<std::string_view> texts(e.texts.begin(), e.texts.end());
    return AttentionPlan(texts, sizes, length);
  }
  std::vector<AnyRelativeScheme> schemes = layer->schemes;
  for (const std::string& text : e.texts) schemes.push_back(relative_scheme(parse_encoding(text)));
  return AttentionPlan(std::move(schemes), sizes, layer->rotary);
}

void NamedFiles::add(std::vector<NamedArray>& to, const std::string& name, Array a) {
  names_.push_back(name);
  arrays_.push_back(std::move(a));
  to.push_back({names_.back(), std::as_const(arrays_.back()).view()});
}

Array as_doubles(const Array& a) {
  Array wide = make_array(DType::f64, a.shape);
  const std::vector<double> v = a.doubles();
  if (!v.empty()) std::memcpy(wide.bytes.data(), v.data(), wide.bytes.size());
  return wide;
}

// What `read` gives, its problems as ones of the input.
template <class F>
static auto of_weights(const ScoreEncodings& e, const F& read) {
  try {
    return read();
  } catch (const FormatError&) {
    throw;
  } catch (const std::runtime_error& problem) {
    throw InputError(fmt::format("{}: {}", e.title, problem.what()));
  }
}

void NamedFiles::add_values(const std::string& name, const std::vector<Index>& shape,
                            const std::vector<double>& values) {
  Array a = make_array(DType::f64, shape);
  if (!values.empty()) std::memcpy(a.bytes.data(), values.data(), a.bytes.size());
  add(parameters_, name, std::move(a));
}

void NamedFiles::read_parameters(const std::vector<Parameter>& needed, const std::string& file,
                                 std::optional<Index> start, const ScoreEncodings& e) {
  if (needed.empty()) {
    if (!file.empty())
      throw UsageError(fmt::format("\"{}\" learns nothing: --params is not read", e.title));
    return;
  }
  std::string names;
  for (const Parameter& p : needed)
    names += fmt::format("{}{} [{}]", names.empty() ? "" : ", ", p.name, fmt::join(p.shape, ", "));
  Arrays held;
  if (!file.empty()) held = read_safetensors(file);
  std::vector<Parameter> others;  // that the file does not have
  for (const Parameter& p : needed) {
    const auto found = held.find(p.name);
    if (found == held.end()) {
      others.push_back(p);
      continue;
    }
    if (found->second.shape != p.shape)
      throw InputError(fmt::format("{}: {} must have shape [{}], got [{}]", file, p.name,
                                   fmt::join(p.shape, ", "), fmt::join(found->second.shape, ", ")));
    add(parameters_, p.name, as_doubles(found->second));
  }
  if (e.layer != nullptr && !start) read_weights(others, e);
  if (others.empty()) return;
  if (!file.empty())
    throw InputError(fmt::format("{}: there is no \"{}\"; \"{}\" learns {}", file,
                                 others.front().name, e.title, names));
  if (!start)
    throw InputError(fmt::format(
        "\"{}\" learns {}: give a .safetensors file of arrays of those names (attend and bias: "
        "--params, table and plot: --arrays), or --start SEED for what they are before training",
        e.title, names));
  for (std::size_t n = 0; n < others.size(); ++n)
    add_values(others[n].name, others[n].shape,
               initial_values(others[n], Draws(static_cast<std::uint64_t>(*start), 0, n)));
}

// Takes those that the layer names away from `others`.
void NamedFiles::read_weights(std::vector<Parameter>& others, const ScoreEncodings& e) {
  ModelWeights weights(e.weights);
  if (!weights.any()) return;
  const auto found =
      of_weights(e, [&] { return posenc::read_parameters(weights, *e.layer, others); });
  for (const ParameterValues& v : found) {
    add_values(v.name, v.shape, v.values);
    std::erase_if(others, [&](const Parameter& p) { return p.name == v.name; });
  }
}

Array sinks_of(const ScoreEncodings& e, Index n_heads) {
  ModelWeights weights(e.weights);
  const ParameterValues v = of_weights(e, [&] { return read_sinks(weights, *e.layer, n_heads); });
  Array a = make_array(DType::f64, {n_heads});
  std::memcpy(a.bytes.data(), v.values.data(), a.bytes.size());
  return a;
}

namespace {

// "batch, queries": the sizes of an input that a call decides by name, others as numbers.
std::string axes_text(const ArrayShape& shape) {
  std::string text;
  for (const Index n : shape)
    text += (text.empty() ? "" : ", ") + (n == kBatch     ? "batch"
                                          : n == kQueries ? "queries"
                                          : n == kKeys    ? "keys"
                                                          : std::to_string(n));
  return text;
}

}  // namespace

void NamedFiles::read_inputs(const std::vector<Input>& needed,
                             const std::vector<std::string>& given) {
  for (const std::string& text : given) {
    const std::size_t at = text.find('=');
    if (at == std::string::npos || at == 0)
      throw UsageError("--input must be NAME=F, got \"" + text + "\"");
    const std::string name = text.substr(0, at);
    const auto input =
        std::find_if(needed.begin(), needed.end(), [&](const Input& i) { return i.name == name; });
    if (input == needed.end()) {
      std::string known;
      for (const Input& i : needed) known += (known.empty() ? "" : ", ") + i.name;
      throw UsageError(
          fmt::format("--input {}: {}", name,
                      known.empty() ? "these schemes read no input" : "the inputs are " + known));
    }
    const Array a = read_array(text.substr(at + 1), name);
    if (!input->integer) {
      add(inputs_, name, as_doubles(a));
      continue;
    }
    Array whole = make_array(DType::i64, a.shape);
    const std::vector<Index> v = a.integers();
    if (!v.empty()) std::memcpy(whole.bytes.data(), v.data(), whole.bytes.size());
    add(inputs_, name, std::move(whole));
  }
  for (const Input& i : needed)
    if (!i.optional && std::none_of(inputs_.begin(), inputs_.end(),
                                    [&](const NamedArray& a) { return a.name == i.name; }))
      throw UsageError(fmt::format("--input {}=F is needed: {} [{}]", i.name,
                                   i.integer ? "integers" : "numbers", axes_text(i.shape)));
}

std::string NamedFiles::draw_inputs(const std::vector<Input>& needed,
                                    const std::vector<std::string>& given, const CallData& sizes,
                                    Index seed) {
  std::string names;
  std::uint64_t which = 16;  // of q, k and v: 0, 1, 2
  for (const Input& input : needed) {
    ++which;
    const bool is_given = std::any_of(given.begin(), given.end(), [&](const std::string& text) {
      return text.rfind(input.name + "=", 0) == 0;
    });
    const bool logarithms = input.name.ends_with("log_gate");  // not above 0: no normal numbers
    if (input.integer || input.optional || is_given || logarithms) continue;
    std::uint64_t from = which;
    if (input.name.rfind("key_", 0) == 0)
      for (std::size_t n = 0; n < needed.size(); ++n)
        if (needed[n].name == "query_" + input.name.substr(4)) from = 17 + n;
    std::vector<Index> shape = input.shape;
    for (Index& n : shape)
      n = n == kBatch ? sizes.batch : n == kQueries ? sizes.queries : n == kKeys ? sizes.keys : n;
    Array a = make_array(DType::f64, shape);
    const Draws draws(static_cast<std::uint64_t>(seed), 1, from);
    auto* to = reinterpret_cast<double*>(a.bytes.data());
    for (std::size_t i = 0; i < a.bytes.size() / sizeof *to; ++i) to[i] = draws.normal(i);
    add(inputs_, input.name, std::move(a));
    names += (names.empty() ? "" : ", ") + input.name;
  }
  return names;
}

PositionList positions_or_order(const std::string& given, Index first, Index tokens,
                                const char* option) {
  if (given.empty()) return {arange(first, tokens), {tokens}};
  PositionList list = read_positions(given);
  if (list.owned.count() != tokens)
    throw InputError(fmt::format("{} are {} positions, and there are {} tokens", option,
                                 list.owned.count(), tokens));
  return list;
}

}  // namespace posenc::report
