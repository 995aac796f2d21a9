// SPDX-License-Identifier: Apache-2.0
#include "common.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iostream>

#include "notes.h"
#include "posenc/absolute/input_term.h"
#include "posenc/core/array_lookup.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/registry/fields.h"
#include "posenc/relative/scheme.h"

namespace posenc::report {
namespace {

// A SCHEME with lists is soon longer than any name of a file: too long is not there. What cannot be
// looked at otherwise (no right to, a circle of links) is said.
bool exists(const std::string& text) {
  std::error_code problem;
  const bool there = std::filesystem::exists(text, problem);
  if (!problem || problem == std::errc::filename_too_long) return there && !problem;
  if (problem == std::errc::too_many_symbolic_link_levels)
    throw InputError(printable(text, 255) + ": its symbolic links form a loop");
  throw std::filesystem::filesystem_error("cannot be accessed",
                                          std::filesystem::path(printable(text, 255)), problem);
}

bool looks_like_a_path(const std::string& text) {
  const std::filesystem::path p(text);
  const std::string e = p.extension().string();
  return text.find(' ') == std::string::npos &&
         (text.find('/') != std::string::npos || e == ".json" || e == ".gguf");
}

ReadOptions read_options(const SubjectOptions& o) {
  ReadOptions r;
  r.context = o.context;
  r.reader = o.reader;
  for (const std::string& a : o.assume) {
    const auto eq = a.find('=');
    if (eq == std::string::npos || eq == 0)
      throw UsageError("--assume must be KEY=VALUE, got \"" + a + "\"");
    const auto [at, first] = r.assume.emplace(a.substr(0, eq), a.substr(eq + 1));
    if (!first && at->second != a.substr(eq + 1))
      throw UsageError(fmt::format("--assume {} is given twice, as {} and as {}", at->first,
                                   at->second, a.substr(eq + 1)));
  }
  return r;
}

// The verbs for what acts in the score.
constexpr const char* kShowsScore =
    "table --what bias and plot --kind bias show what depends only on positions, plot --kind "
    "terms what reads queries or keys";

// Of a scheme that rotates neither q nor k: where it acts instead.
std::string what_it_does(const Encoding& e) {
  return std::visit(
      [](const auto& scheme) -> std::string {
        using S = std::decay_t<decltype(scheme)>;
        const std::string name(S::card.name);
        if constexpr (AbsoluteScheme<S>)
          return name + " acts at the input; table --what rows and plot --kind rows show it";
        else if constexpr (RelativeScheme<S>)
          return name + " acts in the score: " + kShowsScore;
        else
          return name +
                 " is a module with weights of its own; it has no frequencies, and its rows depend "
                 "on "
                 "more than a position: nothing to table, draw or apply";
      },
      e.scheme);
}

}  // namespace

namespace {

// "rope head_dim=128", "yarn", "ropee head_dim=128": no file is called so.
bool looks_like_a_scheme(const std::string& text) {
  const std::string word = text.substr(0, text.find(' '));
  for (const auto& known : {all_schemes(), all_scalings()})
    for (const SchemeInfo& s : known)
      if (s.card.name == word) return true;
  const auto equals = text.find('=');
  return equals != std::string::npos && word.size() < equals &&
         word.find_first_of("/.") == std::string::npos;
}

// "meta-llama/Llama-3.1-8B", "https://...": what a hub calls a model.
bool looks_like_a_hub(const std::string& text) {
  if (text.find("://") != std::string::npos) return true;
  const auto slash = text.find('/');
  return slash != std::string::npos && slash > 0 && text[0] != '.' &&
         text.find('/', slash + 1) == std::string::npos && slash + 1 < text.size() &&
         !exists(text.substr(0, slash));
}

// What people write in place of a file.
std::string absent(const std::string& text) {
  if (looks_like_a_scheme(text))
    return "; a SCHEME is not a MODEL: posenc table, plot, apply, attend and bias accept one";
  if (looks_like_a_hub(text))
    return "; nothing is fetched: download the repository's config.json and name it or its folder";
  return "";
}

}  // namespace

ModelSpec read_model_argument(const SubjectOptions& o) {
  const ReadOptions options = read_options(o);
  if (o.text == "-") return read_model(std::cin, "-", options);
  if (!exists(o.text)) throw InputError(o.text + ": no such file or directory" + absent(o.text));
  const std::string ending = std::filesystem::path(o.text).extension().string();
  for (const char* weights : {".safetensors", ".npy", ".npz", ".bin", ".pt", ".pth", ".onnx"})
    if (ending == weights)
      throw InputError(o.text +
                       ": holds arrays, and a model's positions are in its config.json or .gguf "
                       "file: name that, or the folder that holds both");
  return read_model(o.text, options);
}

namespace {

// A scheme that needs what a model learned: rows at the input, T5's table.
bool learns(const Encoding& e) {
  if (is_relative(e.scheme)) return true;  // for what the verb knows: heads decide
  return std::visit(
      [](const auto& s) {
        if constexpr (AbsoluteScheme<std::decay_t<decltype(s)>>)
          return !s.parameters().empty();
        else
          return false;
      },
      e.scheme);
}

}  // namespace

Subject read_subject(const SubjectOptions& o) {
  Subject s;
  if (o.text == "-" || exists(o.text) || looks_like_a_path(o.text)) {
    for (const auto& [given, name] :
         {std::pair{!o.arrays.empty(), "--arrays"}, std::pair{o.start.has_value(), "--start"}})
      if (given)
        throw UsageError(fmt::format("{} goes with a SCHEME, {} is a model", name, o.text));
    s.model = read_model_argument(o);
    s.title = s.model->model_type.empty() ? o.text : s.model->model_type;
    return s;
  }
  const char* of_a_model = o.layer             ? "--layer"
                           : !o.tower.empty()  ? "--tower"
                           : o.input           ? "--input"
                           : !o.reader.empty() ? "--reader"
                           : !o.assume.empty() ? "--assume"
                                               : nullptr;
  if (of_a_model)
    throw UsageError(fmt::format("{} requires a model; \"{}\" is not a file, so it is a SCHEME",
                                 of_a_model, o.text));
  if (o.start && !o.arrays.empty())
    throw UsageError("--start draws what --arrays holds: one of the two");
  ArrayLookup lookup;
  bool looked_up = false;
  if (!o.arrays.empty())
    lookup = [file = read_safetensors(o.arrays), &o, &looked_up](std::string_view key) {
      looked_up = true;
      const auto it = file.find(std::string(key));
      if (it == file.end()) throw InputError(fmt::format("{}: no array \"{}\"", o.arrays, key));
      return it->second.doubles();
    };
  try {
    Completed whole = complete(o.text, o.sizes, lookup);
    s.encoding = std::move(whole.encoding);
    s.filled = std::move(whole.filled);
  } catch (const std::invalid_argument& e) {
    const std::string shown = o.text.size() <= 200 ? o.text : o.text.substr(0, 197) + "...";
    throw InputError(std::string(e.what()) + "\n(\"" + shown +
                     "\" is not a file, so it was read as a SCHEME)");
  }
  if (!o.arrays.empty() && !looked_up && !learns(*s.encoding))
    throw UsageError("--arrays " + o.arrays + ": the SCHEME uses no @array from it");
  if (o.start && !learns(*s.encoding))
    throw UsageError("--start draws learned parameters, but \"" + o.text +
                     "\" has none: omit --start");
  s.title = o.text;
  return s;
}

namespace {

bool acts_in_score(const LayerSpec& layer) {
  return std::any_of(layer.encodings.begin(), layer.encodings.end(),
                     [](const auto& e) { return is_relative(e.value.scheme); });
}

}  // namespace

RotarySpec rotary_of(const Subject& s, const SubjectOptions& o) {
  if (s.encoding) {
    if (!is_rotary(s.encoding->scheme))
      throw InputError(
          fmt::format("\"{}\" rotates nothing: {}", s.title, what_it_does(*s.encoding)));
    return resolve(*s.encoding, {o.context.value_or(0)});
  }
  require_readable(*s.model);
  const LayerSpec& layer = chosen_layer(*s.model, o);
  if (!layer.rotary)
    throw InputError(fmt::format(
        "{}: layer {} has no rotary encoding (it uses {}){}{}", s.model->file, layer.index,
        layer.scheme, acts_in_score(layer) ? fmt::format("; in the score {}", kShowsScore) : "",
        s.model->input.empty() ? ""
                               : "; what acts at the input: table --what rows, plot --kind rows"));
  say_which(*s.model, o, layer);
  return *layer.rotary;
}

RotarySpec turned_by(const Encoding& e, Context context) {
  if (!std::holds_alternative<Pope>(e.scheme)) return resolve(e, context);
  RotarySpec spec;
  spec.blocks.emplace_back();
  spec.blocks.back().spectrum = resolve_spectrum(e, context);
  return spec;
}

RotarySpec turned_by(const Subject& s, const SubjectOptions& o) {
  if (!s.encoding || !std::holds_alternative<Pope>(s.encoding->scheme)) return rotary_of(s, o);
  return turned_by(*s.encoding, {o.context.value_or(0)});
}

bool names_array(const std::string& argument) {
  return argument.ends_with(".npy") || argument.ends_with(".safetensors") ||
         argument.find(".safetensors:") != std::string::npos;
}

Array read_array(const std::string& argument, const std::string& preferred) {
  const auto dot = argument.rfind(".safetensors");
  if (dot == std::string::npos) {
    if (std::filesystem::path(argument).extension() != ".npy")
      throw InputError(argument + ": must end in .npy or .safetensors");
    return read_npy(argument);
  }
  const auto end = dot + std::string_view(".safetensors").size();
  const std::string file = argument.substr(0, end);
  Arrays arrays = read_safetensors(file);
  if (end < argument.size()) {
    if (argument[end] != ':') throw InputError(argument + ": must end in .npy or .safetensors");
    const auto it = arrays.find(argument.substr(end + 1));
    if (it == arrays.end())
      throw InputError(file + ": no tensor \"" + argument.substr(end + 1) + "\"");
    return std::move(it->second);
  }
  if (const auto it = arrays.find(preferred); it != arrays.end()) return std::move(it->second);
  if (arrays.size() != 1)
    throw InputError(fmt::format("{}: holds {} tensors and none is called {}; name one as {}:NAME",
                                 file, arrays.size(), preferred, file));
  return std::move(arrays.begin()->second);
}

std::string with_commas(Index n) {
  std::string s = std::to_string(n);
  for (std::ptrdiff_t i = static_cast<std::ptrdiff_t>(s.size()) - 3; i > (n < 0 ? 1 : 0); i -= 3)
    s.insert(static_cast<std::size_t>(i), ",");
  return s;
}

std::string bytes_text(double bytes) {
  const char* units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  while (bytes >= 1024 && u < 4) bytes /= 1024, ++u;
  return u == 0 ? fmt::format("{:.0f} {}", bytes, units[u])
                : fmt::format("{:.3g} {}", bytes, units[u]);
}

std::string short_number(double x, int digits) {
  if (x == std::floor(x) && std::abs(x) < 1e15) return with_commas(static_cast<Index>(x));
  return fmt::format("{:.{}g}", x, digits);
}

}  // namespace posenc::report
