// SPDX-License-Identifier: Apache-2.0
#include "law.h"

#include <fmt/format.h>

#include "common.h"

namespace posenc::report {

void LawAnswer::line(const char* name, Json value, const std::string& shown) {
  std::string label = name;
  for (char& c : label)
    if (c == '_') c = ' ';
  text += fmt::format("  {:<26} {}\n", label, shown);
  values.set(name, std::move(value));
}

std::span<const Law> laws() {
  static constexpr Law all[] = {
      {"critical", "Critical dimension and base of RoPE", "arXiv:2310.05209",
       "dimension = 2 ceil(width/2 log_base(trained / 2 pi)); critical base = "
       "base^(log_(trained / 2 pi)(tuned / 2 pi))",
       "MODEL|SCHEME", "trained tuned base wanted", &critical_law},
      {"base", "Least base of RoPE for a context", "arXiv:2405.14591",
       "B(m) = sum over the pairs of cos(m w_i) >= 0 for every distance m of the context",
       "MODEL|SCHEME", "wanted", &base_law},
      {"turns", "Rotations of every pair", "arXiv:2104.09864, sec. 3.2.2", "length |w| / 2 pi",
       "MODEL|SCHEME", "length", &turns_law},
      {"decay", "Distance at which a bias leaves a share of a weight", "arXiv:2108.12409, sec. 3",
       "exp(bias(d) - bias(0)) <= share", "MODEL|SCHEME heads",
       "share head-dim params input start arrays", &decay_law},
      {"window", "Tokens that a stack of layers sees", "arXiv:2310.06825, sec. 2",
       "layers (window - 1) + 1", "", "MODEL|SCHEME window layers both chunk sinks", &window_law},
      {"trained", "Length up to which nothing is new", "arXiv:2309.00071, sec. 3",
       "(trained - 1) w_trained = (length - 1) w, for each pair that completes no rotation; rows "
       "of "
       "tables that training reads",
       "MODEL|SCHEME", "trained head-dim", &trained_law},
  };
  return all;
}

const Law& law_of(const std::string& name) {
  std::string known;
  for (const Law& law : laws()) {
    if (law.name == name) return law;
    known += (known.empty() ? "" : ", ") + std::string(law.name);
  }
  throw UsageError(fmt::format("NAME must be one of {}, got \"{}\"", known, name));
}

}  // namespace posenc::report
