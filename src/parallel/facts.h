// SPDX-License-Identifier: Apache-2.0
// What all ranks of a call must agree on.
#pragma once
#include <array>
#include <cstring>
#include <exception>
#include <string_view>

#include "parallel/exchange.h"
#include "posenc/attention/attend.h"

namespace posenc::inline v0::detail {

// One number for each group of facts, which a message names.
struct Facts {
  enum Name : std::uint8_t { pass, agreement, sizes, mask, terms, shared, gradients, count };
  static constexpr std::array<std::string_view, count> names{
      "the pass",        "what their callers agree on",  "sizes or types", "the mask",
      "terms or stages", "arrays that all tokens share", "the gradients"};
  std::array<std::uint64_t, count> hash;
  Index length = 0;  // of the sequence, as this rank's positions show it

  Facts() { hash.fill(0xcbf29ce484222325u); }
  void add(Name n, std::uint64_t x) noexcept { hash[n] = (hash[n] ^ x) * 0x100000001b3u; }
  void add(Name n, double x) noexcept {
    std::uint64_t bits = 0;
    std::memcpy(&bits, &x, sizeof x);
    add(n, bits);
  }
  void add(Name n, Index x) noexcept { add(n, static_cast<std::uint64_t>(x)); }
  void add(Name n, std::string_view text) noexcept {
    for (const char c : text) add(n, static_cast<Index>(c));
    add(n, static_cast<Index>(text.size()));
  }
  // Type and shape, and where `values` every number.
  void add(Name n, const ConstTensorView&, bool values);
  void add(Name n, const ConstHeads&);
  void add(Name n, const Positions&);
};

void add_call(Facts&, const AttentionArgs&);
void add_wanted(Facts&, const AttentionGradients&);

// Ends a call on every rank alike where some rank cannot begin it, or ranks disagree. `problem`: this rank's. Gives the
// length of the sequence.
Index agree(const Group&, const Facts&, const std::exception_ptr& problem);

}  // namespace posenc::v0::detail
