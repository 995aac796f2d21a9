// SPDX-License-Identifier: Apache-2.0
// Words of the SCHEME grammar, and what is said when one is wrong.
#include "registry/grammar.h"

#include <algorithm>
#include <utility>

#include "posenc/core/error.h"
#include "posenc/core/printable.h"
#include "posenc/registry/fields.h"
#include "registry/grammar_value.h"

namespace posenc::inline v0::grammar {
namespace {

constexpr std::string_view kSchemeText = "scheme";

// What model files and papers call a field that has another name here.
constexpr std::pair<std::string_view, std::string_view> kOtherNames[] = {
    {"theta", "base"},
    {"rope_theta", "base"},
    {"freq_base", "base"},
    {"dim", "head_dim"},
    {"dim", "width"},
    {"d_model", "width"},
    {"hidden_size", "width"},
    {"scale", "factor"},
    {"original_max_position_embeddings", "original_context"},
    {"max_position_embeddings", "rows"},
    {"interleaved", "pairing"}};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Ends at the next blank outside brackets and quotes.
std::string_view next_token(std::string_view& rest) {
  while (!rest.empty() && is_blank(rest.front())) rest.remove_prefix(1);
  bool quoted = false, bracket = false;
  std::size_t i = 0;
  for (; i < rest.size(); ++i) {
    const char c = rest[i];
    if (quoted) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        quoted = false;
    } else if (c == '"') {
      quoted = true;
    } else if (c == '[' || c == ']') {
      bracket = c == '[';
    } else if (is_blank(c) && !bracket) {
      break;
    }
  }
  const std::string_view token = rest.substr(0, std::min(i, rest.size()));
  if (quoted) refuse(kSchemeText, "a double quote must be closed", printable(token));
  if (bracket) refuse(kSchemeText, "a list must be closed by ]", printable(token));
  rest.remove_prefix(token.size());
  return token;
}

// Letters changed, left out or added, and neighbours exchanged (optimal string alignment).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, above(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    before = std::exchange(above, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({above[j] + (a[i] != b[j]), above[j + 1] + 1, row[j] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j])
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
    }
  }
  return row.back();
}

std::string joined(const std::vector<std::string_view>& words) {
  std::string s;
  for (const std::string_view w : words) s.append(s.empty() ? "" : ", ").append(w);
  return s.empty() ? "none" : s;
}

}  // namespace

std::vector<Part> split(std::string_view text) {
  std::vector<Part> parts;
  bool at_start = true;  // of a part
  for (std::string_view token; !(token = next_token(text)).empty();) {
    if (token == "+") {
      if (at_start) refuse(kSchemeText, "a name must come before +");
      at_start = true;
    } else if (at_start) {
      if (token.find_first_of("=[]@\",") != std::string_view::npos)
        refuse(kSchemeText, "a part must begin with the name of a scheme or scaling",
               printable(token));
      parts.push_back({std::string(token), {}});
      at_start = false;
    } else {
      const std::size_t equals = token.find('=');
      if (equals == 0 || equals == std::string_view::npos)
        refuse(kSchemeText, parts.back().name + ": fields are written key=value", printable(token));
      parts.back().values.emplace_back(token.substr(0, equals), token.substr(equals + 1));
    }
  }
  if (parts.empty()) refuse(kSchemeText, "must begin with the name of a scheme");
  if (at_start) refuse(kSchemeText, "a scaling must follow the last +");
  return parts;
}

void refuse_unknown(std::string_view what, std::string_view got,
                    const std::vector<std::string_view>& known, std::string_view field) {
  const std::string word = printable(got);
  std::string_view meant = nearest_word(word, known);
  for (const auto& [theirs, ours] : kOtherNames)
    if (theirs == got && std::find(known.begin(), known.end(), ours) != known.end()) meant = ours;
  std::string rule(what);
  rule += " must be one that posenc knows (";
  if (!meant.empty()) rule.append("did you mean ").append(meant).append("? There are: ");
  refuse_sentence(kSchemeText, field, rule + joined(known) + ")", word);
}

namespace {

using Values = std::vector<std::pair<std::string, std::string>>;

Values::iterator value_of(Values& values, std::string_view key) {
  return std::find_if(values.begin(), values.end(), [&](const auto& v) { return v.first == key; });
}

const FieldRef* field_of(const std::vector<FieldRef>& fields, std::string_view key) {
  const auto at =
      std::find_if(fields.begin(), fields.end(), [&](const FieldRef& f) { return f.name == key; });
  return at == fields.end() ? nullptr : &*at;
}

// The index of the field; throws where there is none of that name.
std::size_t index_of(std::string_view part, std::string_view name,
                     const std::vector<FieldRef>& fields) {
  if (const FieldRef* field = field_of(fields, name))
    return static_cast<std::size_t>(field - fields.data());
  std::vector<std::string_view> known;
  for (const FieldRef& f : fields) known.push_back(f.name);
  refuse_unknown("a field of " + std::string(part), name, known);
}

}  // namespace

std::optional<ChosenPreset> take_preset(Part& part, const std::vector<PresetName>& known,
                                        const std::vector<FieldRef>& fields) {
  const auto at = value_of(part.values, "preset");
  if (at == part.values.end()) return std::nullopt;
  const std::string name = at->second;
  part.values.erase(at);
  part.preset = true;
  if (value_of(part.values, "preset") != part.values.end())
    refuse(kSchemeText, part.name + ": a preset must be given once", name);
  const auto preset =
      std::find_if(known.begin(), known.end(), [&](const PresetName& p) { return p.name == name; });
  if (preset == known.end()) {
    std::vector<std::string_view> names;
    for (const PresetName& p : known) names.push_back(p.name);
    refuse_unknown("a preset of " + part.name, name, names);
  }
  ChosenPreset chosen{static_cast<std::size_t>(preset - known.begin()), {}};
  for (const std::string_view key : preset->sizes) {
    const auto given = value_of(part.values, key);
    if (given == part.values.end())
      refuse_sentence(kSchemeText, key,
                      part.name + ": " + std::string(key) + " must be given with preset " + name);
    static constexpr Field kSize{.doc = "a size", .min = 1, .max = 1e6};
    Index n = 0;
    parse_value({part.name, key, kSize, {}}, given->second, {&n});
    chosen.sizes.push_back(n);
    if (field_of(fields, key)) continue;
    part.values.erase(given);
    if (value_of(part.values, key) != part.values.end())
      refuse(kSchemeText, part.name + ": a size of a preset must be given once", key);
  }
  return chosen;
}

std::size_t set_value(std::string_view part, std::string_view name,
                      const std::vector<FieldRef>& fields, const Json& value) {
  const std::size_t i = index_of(part, name, fields);
  set_value({part, name, fields[i].field, {}}, value, fields[i].value);
  return i;
}

void assign(const Part& part, const std::vector<FieldRef>& fields,
            const std::vector<FieldRef>& defaults, const ArrayLookup& arrays) {
  std::vector<bool> given(fields.size(), false);
  for (const auto& [key, text] : part.values) {
    const std::size_t i = index_of(part.name, key, fields);
    if (given[i])
      refuse_sentence(kSchemeText, key, part.name + ": a field must be given once", key);
    given[i] = true;
    parse_value({part.name, key, fields[i].field, arrays}, text, fields[i].value);
  }
  for (std::size_t i = 0; i < fields.size(); ++i)
    if (fields[i].field.required && !given[i] && !part.preset &&
        value_text(fields[i].value) == value_text(defaults[i].value))
      refuse_sentence(kSchemeText, fields[i].name,
                      part.name + ": " + std::string(fields[i].name) + " must be given (" +
                          std::string(fields[i].field.doc) + ")");
}

std::string print(std::string_view name, const std::vector<FieldRef>& fields,
                  const std::vector<FieldRef>& defaults) {
  std::string s(name);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::string text = value_text(fields[i].value);
    if (!fields[i].field.required && text == value_text(defaults[i].value)) continue;
    s.append(" ").append(fields[i].name).append("=").append(text);
  }
  return s;
}

}  // namespace posenc::v0::grammar

namespace posenc::inline v0 {

std::string_view nearest_word(std::string_view word, std::span<const std::string_view> known) {
  // Half of a short word is another word: frob is not bros.
  const std::size_t most = word.size() < 5 ? 1 : std::max<std::size_t>(2, word.size() / 3);
  std::size_t best = most + 1;
  std::string_view nearest;
  for (const std::string_view k : known)
    if (const std::size_t d = grammar::distance(word, k); d < best && d < k.size())
      best = d, nearest = k;
  return nearest;
}

}  // namespace posenc::v0
