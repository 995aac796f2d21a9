// SPDX-License-Identifier: Apache-2.0
// frequencies, correction_range, calls: the numbers of a spectrum.
#include <cmath>

#include "conformance/runner/encoding.h"
#include "posenc/core/error.h"
#include "posenc/scaling/correction.h"
#include "posenc/scaling/length_rule.h"

namespace posenc::conformance {
namespace {

const RotaryBlock& block_of(const Check& check, const RotarySpec& spec) {
  const auto i = static_cast<std::size_t>(check.integer("block", 0));
  if (i >= spec.blocks.size())
    refuse("case", "the scheme has no such block", static_cast<Index>(i));
  return spec.blocks[i];
}

// One per pair (the axis that turns it), head by head, block by block.
std::vector<double> frequencies_of(const RotarySpec& spec) {
  std::vector<double> all;
  for (const RotaryBlock& block : spec.blocks) {
    const Spectrum& s = block.spectrum;
    for (Index h = 0; h < s.heads; ++h)
      for (Index p = 0; p < s.pairs(); ++p) {
        double f = 0;
        for (Index a = 0; a < s.axes; ++a)
          f += s.frequency[static_cast<std::size_t>((h * s.axes + a) * s.pairs() + p)];
        all.push_back(f);
      }
  }
  return all;
}

// [heads, pairs] where there is one block, else one behind the other.
std::vector<Index> shape_of(const RotarySpec& spec) {
  Index all = 0;
  for (const RotaryBlock& block : spec.blocks) all += block.spectrum.heads * block.pairs();
  if (spec.blocks.size() != 1) return {all};
  return {spec.blocks[0].spectrum.heads, spec.blocks[0].pairs()};
}

void expect_as_held(Check& check, const Spectrum& s) {
  check.expect("frequency", s.frequency, {s.heads, s.axes, s.pairs()});
}

void expect_equal(Check& check, const RotarySpec& spec) {
  const Json* equal = check.find("equal");
  if (equal == nullptr) return;
  for (const auto& [key, want] : equal->as_object()) {
    double got = 0;
    if (key == "gain")
      got = block_of(check, spec).spectrum.gain;
    else if (key == "logit_factor")
      got = spec.logit_factor();
    else if (key == "rotary_dim")
      got = static_cast<double>(block_of(check, spec).width());
    else
      refuse("case", "frequencies can equal gain, logit_factor or rotary_dim", key);
    const Json number = want.is_string() ? check.in_case.parameter(want.as_string()) : want;
    const double bound = 1e-14 * std::abs(number.as_number());
    check.comparison.element(got, number.as_number(), bound, key,
                             [] { return std::vector<Index>{}; });
  }
}

}  // namespace

// inv_freq: one per pair; periods: 2 pi over it; frequency: as the spectrum of one block holds
// them; gain; softmax_scale: qk_head_dim^(-1/2) times the logit factor.
void run_frequencies(Check& check) {
  const RotarySpec spec = rotary_of(check);
  const std::vector<double> all = frequencies_of(spec);
  const std::vector<Index> shape = shape_of(spec);
  check.expect("inv_freq", all, shape);
  std::vector<double> periods;
  for (const double f : all) periods.push_back(2 * std::acos(-1.0) / f);
  check.expect("periods", periods, shape);
  if (check.array_name("out", "frequency") != nullptr)
    expect_as_held(check, block_of(check, spec).spectrum);
  if (check.array_name("out", "gain") != nullptr)
    check.expect("gain", std::vector<double>{block_of(check, spec).spectrum.gain}, {1});
  if (check.array_name("out", "softmax_scale") != nullptr) {
    const double width = check.number("qk_head_dim", 0);
    check.expect("softmax_scale", std::vector<double>{spec.logit_factor() / std::sqrt(width)}, {1});
  }
  expect_equal(check, spec);
}

// rows: [[width, length, base, fast, slow], ...] -> (low, high) of each, rounded outwards.
void run_correction_range(Check& check) {
  const Json rows = check.in_case.parameter(check.text("rows"));
  std::vector<double> ends;
  for (const Json& row : rows.as_array()) {
    std::vector<double> v;
    for (const Json& number : row.as_array()) v.push_back(number.as_number());
    if (v.size() != 5) refuse("case", "a row is width, length, base, fast, slow", Index(v.size()));
    const CorrectionRange range =
        correction_range(Geometric{v[2], static_cast<Index>(v[0])}, v[1], v[3], v[4], true);
    ends.push_back(range.low);
    ends.push_back(range.high);
  }
  check.expect("range", ends, {static_cast<Index>(ends.size()) / 2, 2});
}

// One module called with `lengths` in turn: inv_freq [call, pair]. hold hugging_face: what
// transformers' dynamic NTK keeps between calls (length_rule.h); none: each call by itself.
void run_calls(Check& check) {
  const Slice lengths = check.input("lengths");
  const bool hold = check.text("hold", "none") == "hugging_face";
  const auto trained = check.integer("trained", 0);
  Index held = trained;
  std::vector<double> all;
  for (const double length : lengths.values()) {
    held = hold ? hugging_face_held_length(held, static_cast<Index>(length), trained)
                : static_cast<Index>(length);
    const Check called = check.inherited(Json::object({{"context", Json(held)}}));
    const std::vector<double> now = frequencies_of(rotary_of(called));
    all.insert(all.end(), now.begin(), now.end());
  }
  const Index calls = lengths.count();
  check.expect("inv_freq", all, {calls, calls == 0 ? 0 : static_cast<Index>(all.size()) / calls});
}

}  // namespace posenc::conformance
