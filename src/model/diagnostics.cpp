// SPDX-License-Identifier: Apache-2.0
#include "model/diagnostics.h"

#include <algorithm>
#include <utility>

namespace posenc::inline v0 {
namespace {

// The fix of those findings of a code that name none of their own. docs/doctor.md lists them and says
// what every code means; tests/docs/codes.py compares.
struct DefaultFix {
  std::string_view code, fix;
};
constexpr DefaultFix kDefaultFixes[] = {
    {"assumed", "check it against the model's code"},
    {"both_spellings", "keep the one that is right"},
    {"encoding_not_covered",
     "read the model's code for what the message names; the report describes the rest"},
    {"factor_below_one", "write new length / trained length"},
    {"key_ignored", "nothing to do"},
    {"layer_types_length", "write one entry for each layer"},
    {"list_length", "use the list of the model's own file"},
    {"no_layers", "state how many layers the model has"},
    {"no_rotary", "nothing to do; posenc explain shows what the model has instead"},
    {"not_finite", "write a plain number"},
    {"sections_sum", "make the sections add up to the number of pairs"},
    {"table_missing", "use the tensor of the model's own checkpoint"},
    {"tower_not_covered", "read that part's code; the report describes the other parts"},
    {"wrong_type", "write a plain number"},
};

std::string_view default_fix(std::string_view code) {
  for (const DefaultFix& known : kDefaultFixes)
    if (known.code == code) return known.fix;
  return "";
}

// The object or list in which a place lies, one for all entries of a list:
// "config.json#/block_configs//attention" of ".../block_configs/7/attention/window_length".
std::string holder(std::string_view place) {
  std::string text(place.substr(0, place.rfind('/')));
  std::erase_if(text, [](char c) { return c >= '0' && c <= '9'; });
  return text;
}

}  // namespace

std::string shown(const Json& j) {
  std::string text = j.dump();
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

std::string Sentence::of(const std::string& class_name) const {
  constexpr std::string_view kClass = "{class}";
  std::string_view rest = form_;
  std::string out;
  for (auto value = values_.begin(); !rest.empty();) {
    const std::size_t at = std::min(rest.find('{'), rest.size());
    out += rest.substr(0, at);
    rest.remove_prefix(at);
    const bool is_class = rest.starts_with(kClass), is_value = rest.starts_with("{}");
    if (rest.empty()) break;
    out += is_class ? class_name : is_value ? *value++ : "{";
    rest.remove_prefix(is_class ? kClass.size() : is_value ? 2 : 1);
  }
  return out;
}

void Diagnostics::add(Finding f) {
  if (f.fix.empty()) f.fix = default_fix(f.code);
  for (std::string* text : {&f.code, &f.message, &f.where, &f.fix})
    *text = printable(*text, std::string::npos);
  Seen& seen = seen_[f.code + '\n' + f.where + '\n' + f.message];
  if (seen.severity && *seen.severity >= f.severity) return;
  errors_ += f.severity == Severity::error;
  seen.severity = f.severity;
  if (seen.kept) {
    findings_[*seen.kept] = std::move(f);
    return;
  }
  Alike& alike =
      alike_[f.code + '\n' + std::string(enum_text(f.severity)) + '\n' + holder(f.where)];
  if (alike.kept == kMostAlike) {
    ++alike.more;
    return;
  }
  ++alike.kept;
  seen.kept = alike.last = findings_.size();
  findings_.push_back(std::move(f));
}

std::vector<Finding> Diagnostics::take() {
  for (const auto& [kind, alike] : alike_)
    if (alike.more > 0)
      findings_[alike.last].message +=
          " (and " + std::to_string(alike.more) + " more of this kind)";
  seen_.clear();
  alike_.clear();
  errors_ = 0;
  return std::exchange(findings_, {});
}

}  // namespace posenc::v0
