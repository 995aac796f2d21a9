// SPDX-License-Identifier: Apache-2.0
// Which engine runs a call of attention, why the others do not, and what kind of work each term is.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "posenc/attention/attention.h"
#include "posenc/core/describe.h"

namespace posenc::inline v0 {

// How a term enters the scores, which determines its cost in an engine.
enum class TermClass : std::uint8_t {
  none,              // adds nothing: scale 0, or disabled for every pair
  linear,            // a slope of the distance
  band,              // a number by distance on one axis
  pair_number,       // a number by several distances or by classes
  query_rows,        // q, or a vector of the query, times a row of a table
  key_rows,          // the same of the key
  token_number,      // one number a query, one a key
  product,           // vectors of the query times vectors of the key: a wider q.k
  weighted_product,  // the same times a number of a table, or without some pairs
  gates,             // a sum of gates between key and query
  distance_curve,    // a function of the distance
  value_rows,        // rows added to the values
  all_heads,         // needs the scores of all heads
};
template <>
struct EnumNames<TermClass> {
  static constexpr std::array<std::string_view, 13> value{
      "none",           "linear",       "band",     "pair_number",      "query_rows",
      "key_rows",       "token_number", "product",  "weighted_product", "gates",
      "distance_curve", "value_rows",   "all_heads"};
};
// Of a term that check_attention accepts.
POSENC_API TermClass term_class(const Term&) noexcept;

struct PlanExplanation {
  struct Other {
    std::string engine, why_not;
  };
  struct ExplainedTerm {
    std::string name;  // of the scheme that added it; of a call's own term its kind
    TermClass of = TermClass::none;
  };
  std::string engine;           // runs attend
  std::string backward_engine;  // runs attend_backward
  std::vector<Other> others;    // engines that come first in the list, and why they do not run it
  std::vector<Other> backward_others;  // the same of attend_backward
  std::size_t workspace_bytes = 0;     // that the engine needs besides inputs and outputs, forward
  std::vector<ExplainedTerm> terms;
};
// Throws [attention]: what attend rejects of the call; nothing is computed.
POSENC_API PlanExplanation explain_plan(const AttentionArgs&);
// LoweredAttention::explain does the same of a call that it would run.

}  // namespace posenc::v0
