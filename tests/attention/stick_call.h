// SPDX-License-Identifier: Apache-2.0
// Calls that break sticks, for the fast engine.
#pragma once
#include "attention/float_call.h"

namespace posenc {

struct StickCall : FloatCall {
  // number: added to all scores. Near -5 a stick lasts for hundreds of keys, near 0 for a few.
  StickCall(Index queries, Index keys, std::uint64_t seed, double number = -3, Index count = 2,
            Index groups = 1)
      : FloatCall(1, queries, keys, count, groups, seed % 2 == 0 ? 8 : 5, seed % 3 == 0 ? 8 : 20,
                  seed),
        numbers{number} {
    ProductTerm all;
    all.table = tensor(std::as_const(numbers).data(), {1, 1, 1, 1});
    terms = {all};
    args.terms = terms;
    args.mask.causal = true;
    args.normalisation =
        seed % 2 == 0 ? Normalisation::stick_breaking : Normalisation::stick_breaking_own;
  }
  std::vector<double> numbers;
  std::vector<Term> terms;
};

}  // namespace posenc
