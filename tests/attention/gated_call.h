// SPDX-License-Identifier: Apache-2.0
// Calls whose gates select rows of a table (CoPE), for the fast engine.
#pragma once
#include "attention/float_call.h"

namespace posenc {

struct GatedCall : FloatCall {
  // rows: of the table; scale: of a gate's product. Products are near 0, and half of each key counts.
  GatedCall(Index queries, Index keys, Index rows, std::uint64_t seed, double scale = 0.4,
            Index heads = 2, Index groups = 1)
      : FloatCall(1, queries, keys, heads, groups, seed % 2 == 0 ? 8 : 5, 8, seed),
        random(seed + 1),
        table(random.normals(static_cast<std::size_t>(rows * D))) {
    term.table = tensor(std::as_const(table).data(), {1, 1, rows, D});
    term.query = term.key = kContent;
    term.gate_scale = scale, term.scale = 0.3;
    args.mask.causal = true;
  }
  // The sum of gates itself, in place of a row of the table.
  void without_table(Gate gate) {
    term.table = {}, term.gate = gate;
    term.scale = gate == Gate::sigmoid ? -0.3 : 0.8;
  }
  // By rows, in float. Of a key that -inf hides no gate counts; of others they do, however low the number.
  void bias_hides_keys() {
    for (Index n = 0; n < Tq * Tk; ++n) {
      const Index i = n / Tk, j = n % Tk;
      const float x = static_cast<float>(0.5 * random.normal());
      const bool hides = (i + j) % 3 == 0 || (i % 5 == 1 && j / 32 % 2 == 1);
      bias.push_back(hides ? -HUGE_VALF : j % 7 == 2 ? -1e38f : x);
    }
    args.mask.bias = tensor(std::as_const(bias).data(), {Tq, Tk});
  }
  const std::vector<Term>& of_term() {
    terms = {term};
    args.terms = terms;
    return terms;
  }
  // Products of a gate that are not those of q and k.
  ConstHeads vectors(Index tokens, Index count, Index channels) {
    given.push_back(random.normals(static_cast<std::size_t>(tokens * count * channels)));
    return heads(tensor(std::as_const(given.back()).data(), {1, tokens, count, channels}),
                 HeadsLayout::bthd);
  }
  std::string wrong_gradients_of() {
    of_term();
    return wrong_backward();
  }
  std::string wrong_of() {
    of_term();
    return wrong();
  }
  test::Random random;
  std::vector<double> table;
  std::vector<float> bias;
  std::vector<std::vector<double>> given;
  GatesTerm term;
  std::vector<Term> terms;
};

}  // namespace posenc
