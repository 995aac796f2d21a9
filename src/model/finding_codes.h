// SPDX-License-Identifier: Apache-2.0
// The fix of those findings of a code that name none of their own. docs/doctor.md lists them and says
// what every code means; tests/docs/codes.py compares.
#pragma once
#include <string_view>

namespace posenc {

struct DefaultFix {
  std::string_view code, fix;
};
inline constexpr DefaultFix kDefaultFixes[] = {
    {"assumed", "check it against the model's code"},
    {"both_spellings", "keep the one that is right"},
    {"encoding_not_covered",
     "read the model's code for what the message says; the rest is described"},
    {"factor_below_one", "state new length / trained length"},
    {"key_ignored", "nothing to do"},
    {"layer_types_length", "one entry a layer"},
    {"list_length", "take the list of the model's own file"},
    {"no_layers", "state how many layers the model has"},
    {"no_rotary", "nothing to do; posenc explain shows what acts in its place"},
    {"not_finite", "write a plain number"},
    {"sections_sum", "sections count pairs, and all pairs"},
    {"table_missing", "take the tensor from the model's own checkpoint"},
    {"tower_not_covered", "read that part's code; the other parts are described"},
    {"wrong_type", "write a plain number"},
};

}  // namespace posenc
