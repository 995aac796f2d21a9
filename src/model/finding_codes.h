// SPDX-License-Identifier: Apache-2.0
// Every code of a finding, with the fix of those findings that name none of their own (empty: each
// names one). docs/doctor.md says what a code means and lists the fixes; tests/docs/codes.py compares.
#pragma once
#include <string_view>

namespace posenc {

struct FindingCode {
  std::string_view code, fix;
};
// clang-format off
inline constexpr FindingCode kFindingCodes[] = {
    {"alias_not_read", ""},
    {"assume_unused", ""},
    {"assumed", "check it against the model's code"},
    {"assumed_defaults", ""},
    {"both_spellings", "keep the one that is right"},
    {"context_beyond_table", ""},
    {"contradiction", ""},
    {"converted", ""},
    {"dynamic_cache", ""},
    {"embedding_scale", ""},
    {"encoding_not_covered", "read the model's code for what the message says; the rest is described"},
    {"factor_below_one", "state new length / trained length"},
    {"factor_not_positive", ""},
    {"factor_not_ratio", ""},
    {"float32_angle", ""},
    {"gguf_data_missing", ""},
    {"gguf_factors_only", ""},
    {"gguf_lost", ""},
    {"key_ignored", "nothing to do"},
    {"layer_types_length", "one entry a layer"},
    {"layout_not_covered", ""},
    {"left_padding", ""},
    {"list_ignored", ""},
    {"list_length", "take the list of the model's own file"},
    {"missing_key", ""},
    {"mla_logit_factor", ""},
    {"no_layers", "state how many layers the model has"},
    {"no_rotary", "nothing to do; posenc explain shows what acts in its place"},
    {"nope_polarity", ""},
    {"not_a_rotation", ""},
    {"not_finite", "write a plain number"},
    {"out_of_range", ""},
    {"padding_offset", ""},
    {"padding_row", ""},
    {"pair_never_turns", ""},
    {"pairing_risk", ""},
    {"partial_conflict", ""},
    {"partial_ignored", ""},
    {"partial_out_of_range", ""},
    {"peer_bug", ""},
    {"range_reversed", ""},
    {"reader_refused", ""},
    {"refused", ""},
    {"remote_code", ""},
    {"scaling_hidden_by_window", ""},
    {"sections_sum", "sections count pairs, and all pairs"},
    {"sinusoid_width", ""},
    {"static_yarn_short", ""},
    {"switch_length", ""},
    {"table_constant", ""},
    {"table_differs", ""},
    {"table_missing", "take the tensor from the model's own checkpoint"},
    {"table_shape", ""},
    {"table_zero", ""},
    {"theta_lost_v4", ""},
    {"theta_lost_v5", ""},
    {"theta_not_positive", ""},
    {"tower_not_covered", "read that part's code; the other parts are described"},
    {"truncate_ignored", ""},
    {"truncate_rounded", ""},
    {"unknown_model_type", ""},
    {"unknown_rope_type", ""},
    {"weights_unreadable", ""},
    {"wrong_type", "write a plain number"},
    {"yarn_with_lists", ""},
};
// clang-format on

}  // namespace posenc
