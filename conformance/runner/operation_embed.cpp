// SPDX-License-Identifier: Apache-2.0
// embed: the sum of looked-up rows, its norm, and all gradients, in double.
#include <algorithm>
#include <deque>

#include "conformance/runner/axes.h"
#include "conformance/runner/position_list.h"
#include "conformance/runner/tensors.h"
#include "posenc/absolute/embed.h"
#include "posenc/core/error.h"

namespace posenc::conformance {
namespace {

// A table of the check, and its gradient summed over all calls.
struct Table {
  std::string name;
  std::vector<double> value, gradient;
  std::vector<Index> shape;
};

struct Tables {
  std::deque<Table> all;
  Table& get(const Check& check, const std::string& name) {
    for (Table& t : all)
      if (t.name == name) return t;
    const Slice s = slice(check.in_case, name);
    all.push_back({name, s.values(), {}, s.shape});
    all.back().gradient.resize(all.back().value.size());
    return all.back();
  }
};
TensorView view(std::vector<double>& v, const std::vector<Index>& shape) {
  return tensor(static_cast<void*>(v.data()), DType::f64, shape);
}

// The patches of images [b, channel, y, x] through a square convolution without overlap, row by
// row, behind a class token: what a vision tower adds its positions to.
Table& patches(const Check& check, const Json& words, Tables& tables) {
  const Check part(check, words, "patches");
  const Slice pixels = slice(check.in_case, part.text("pixels"));
  const Slice weight = slice(check.in_case, part.text("weight"));
  const std::vector<double> image = pixels.values(), kernel = weight.values();
  const std::vector<double> bias = slice(check.in_case, part.text("bias")).values();
  const std::vector<double> first = slice(check.in_case, part.text("class")).values();
  const Index channels = pixels.shape.at(1), h = pixels.shape.at(2), w = pixels.shape.at(3);
  const Index out = weight.shape.at(0), side = weight.shape.at(2);
  if (side < 1 || static_cast<Index>(first.size()) != out)
    refuse("case", "patches need a square weight and a class token as wide as its outputs", side);
  Table t;
  t.name = "patches";
  t.shape = {pixels.shape[0], 1 + h / side * (w / side), out};
  for (Index b = 0; b < t.shape[0]; ++b) {
    t.value.insert(t.value.end(), first.begin(), first.end());
    for (Index y = 0; y + side <= h; y += side)
      for (Index x = 0; x + side <= w; x += side)
        for (Index o = 0; o < out; ++o) {
          double sum = bias.at(static_cast<std::size_t>(o));
          for (Index c = 0; c < channels; ++c)
            for (Index i = 0; i < side * side; ++i)
              sum += kernel.at(static_cast<std::size_t>((o * channels + c) * side * side + i)) *
                     image.at(static_cast<std::size_t>(((b * channels + c) * h + y + i / side) * w +
                                                       x + i % side));
          t.value.push_back(sum);
        }
  }
  t.gradient.resize(t.value.size());
  tables.all.push_back(std::move(t));
  return tables.all.back();
}

// The parts of one call, with the memory of their ids.
struct Call {
  std::deque<OwnedPositions> ids;
  std::vector<EmbedPart> parts;
  std::vector<TensorView> gradients;
};

Call call_of(const Check& check, const Json& parts, std::string_view place, Tables& tables) {
  Call c;
  for (std::size_t n = 0; n < parts.as_array().size(); ++n) {
    const Json& json = parts.as_array()[n];
    const Check part(check, json, Check::place(place, n));
    EmbedPart p;
    const bool is_table = json.find("table") != nullptr;
    const Json* images = json.find("patches");
    Table& t = images != nullptr ? patches(part, *images, tables)
                                 : tables.get(check, part.text(is_table ? "table" : "rows"));
    (is_table ? p.table : p.rows) = view(t.value, t.shape);
    p.scale = part.number("scale", 1);
    p.offset = part.integer("offset", 0);
    if (json.find("frozen") != nullptr) p.frozen = part.integer("frozen", 0);
    if (is_table) {
      c.ids.push_back(positions_of(part, "ids"));
      auto& ids = std::get<std::vector<Index>>(c.ids.back().value);
      p.ids = tensor(ids.data(), {c.ids.back().batch, c.ids.back().count()});
    }
    c.parts.push_back(p);
    c.gradients.push_back(view(t.gradient, t.shape));
  }
  return c;
}

std::vector<double> ordered(const Check& check, const Slice& s, std::vector<double> values,
                            bool to_stored, std::vector<Index>& shape) {
  const Axes axes(s.shape, letters_of(check, s, s.shape.size() == 2 ? "td" : "btd"), {});
  shape = {axes['b'].size, axes['t'].size, axes['d'].size};
  std::vector<double> out(values.size());
  std::size_t i = 0;
  for (const Index at : axes.walk("btd")) {
    if (to_stored)
      out[static_cast<std::size_t>(at)] = values[i++];
    else
      out[i++] = values[static_cast<std::size_t>(at)];
  }
  return out;
}

std::vector<Json> calls_of(const Check& check) {
  if (const Json* calls = check.part("calls")) return calls->as_array();
  const Json* parts = check.part("parts");
  if (parts == nullptr) refuse_field("case", "embed", "needs parts, or a list of calls");
  return {*parts};
}

}  // namespace

void run_embed(Check& check) {
  Tables tables;
  std::optional<EmbedNorm> norm;
  Table* gamma = nullptr;
  Table* beta = nullptr;
  if (const Json* given = check.part("norm")) {
    const Check words(check, *given, "norm");
    gamma = &tables.get(check, words.text("gamma"));
    beta = &tables.get(check, words.text("beta"));
    norm = EmbedNorm{view(gamma->value, gamma->shape), view(beta->value, beta->shape),
                     words.number("epsilon", 1e-12)};
  }
  const std::vector<Json> calls = calls_of(check);
  for (std::size_t n = 0; n < calls.size(); ++n) {
    const std::string place = check.part("calls") == nullptr ? "parts" : Check::place("calls", n);
    Call call = call_of(check, calls[n], place, tables);
    const std::string ours = calls.size() == 1 ? "out" : "out" + std::to_string(n);
    if (const std::string* name = check.array_name("out", ours)) {
      const Slice want = slice(check.in_case, *name);
      std::vector<Index> shape;
      std::vector<double> y(static_cast<std::size_t>(want.count()));
      ordered(check, want, y, false, shape);
      embed(call.parts, norm, view(y, shape));
      check.expect(want, ordered(check, want, std::move(y), true, shape));
    }
    // Calls without an output of ours in the sum are named by `graded`: how many of the first.
    if (check.array_name("in", "grad_out") == nullptr ||
        static_cast<Index>(n) >= check.integer("graded", static_cast<Index>(calls.size())))
      continue;
    const Slice up = check.input("grad_out");
    std::vector<Index> shape;
    std::vector<double> d = ordered(check, up, up.values(), false, shape);
    EmbedGradients g{call.gradients, {}, {}};
    if (gamma != nullptr) g.gamma = view(gamma->gradient, gamma->shape);
    if (beta != nullptr) g.beta = view(beta->gradient, beta->shape);
    embed_gradient(call.parts, norm, view(d, shape), g);
  }
  for (const Table& t : tables.all) check.expect("grad_" + t.name, t.gradient, t.shape);
}

}  // namespace posenc::conformance
