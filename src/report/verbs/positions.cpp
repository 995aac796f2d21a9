// SPDX-License-Identifier: Apache-2.0
// posenc positions: the positions of a rule of posenc/positions/rule.h as an array.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "common.h"
#include "posenc/positions/rule.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

struct RuleOptions {
  std::string rule;
  std::map<std::string, std::string, std::less<>> arrays;  // by name: a file, or a list
};

std::string option_of(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

std::vector<std::string> names_in(std::string_view list) {
  std::vector<std::string> names;
  for (std::size_t from = 0; from < list.size();) {
    const std::size_t to = std::min(list.find(' ', from), list.size());
    names.emplace_back(list.substr(from, to - from));
    from = to + 1;
  }
  return names;
}

// Rejects, by option, an array that the rule does not read, and one that it lacks.
void check_arrays(const RuleInfo& rule, const RuleOptions& o) {
  const std::vector<std::string> needed = names_in(rule.arrays), more = names_in(rule.optional);
  std::string read;
  for (const auto* names : {&needed, &more})
    for (const std::string& name : *names) read += (read.empty() ? "" : ", ") + option_of(name);
  for (const auto& [name, text] : o.arrays)
    if (std::find(needed.begin(), needed.end(), name) == needed.end() &&
        std::find(more.begin(), more.end(), name) == more.end())
      throw UsageError(fmt::format("{} is not read by {}, which reads {}", option_of(name),
                                   rule.name, read.empty() ? "no array" : read));
  for (const std::string& name : needed)
    if (!o.arrays.contains(name))
      throw UsageError(fmt::format("{} needs {}: a file or a list", rule.name, option_of(name)));
}

Array array_of(const OwnedPositions& p) {
  std::vector<Index> shape;
  if (p.axes > 1) shape.push_back(p.axes);
  if (p.axes > 1 || p.batch > 1) shape.push_back(p.batch);
  shape.push_back(p.count());
  return std::visit(
      [&](const auto& v) {
        using Value = typename std::decay_t<decltype(v)>::value_type;
        return make_array(tensor(v.data(), posenc::dtype_of<Value>, shape));
      },
      p.value);
}

// A file, or a list or range as --positions has it.
Array read_values(const std::string& name, const std::string& text) {
  if (names_array(text)) return read_array(text, name);
  try {
    return array_of(read_positions(text).owned);
  } catch (const UsageError&) {
    throw UsageError(
        fmt::format("{} must be a file F.npy or F.safetensors, a list 0,1,2 or A:B, got "
                    "\"{}\"",
                    option_of(name), text));
  }
}

Report positions(const RuleOptions& o, const Request& r) {
  const RuleInfo& rule = position_rule(o.rule);
  check_arrays(rule, o);
  Arrays held;
  std::vector<PositionArray> arrays;
  for (const auto& [name, text] : o.arrays) {
    const Array& a = held.emplace(name, read_values(name, text)).first->second;
    arrays.push_back({name, a.view()});
  }
  const RulePositions made = positions_by_rule(o.rule, arrays);
  Report report{.schema = "posenc.positions/1"};
  report.arrays.emplace("positions", array_of(made.positions));
  if (!made.delta.empty() && (r.in_memory || array_format({r.path, r.format}) == "safetensors"))
    report.arrays.emplace("delta", array_of(explicit_positions(made.delta)));
  return report;
}

// Every array that some rule reads is an option.
void add_arrays(Words& w, RuleOptions& o) {
  std::map<std::string, std::string> readers;
  std::vector<std::string> order;
  for (const RuleInfo& rule : position_rules())
    for (const std::string_view list : {rule.arrays, rule.optional})
      for (const std::string& name : names_in(list)) {
        std::string& rules = readers[name];
        if (rules.empty()) order.push_back(name);
        rules += (rules.empty() ? "" : ", ") + std::string(rule.name);
      }
  for (const std::string& name : order)
    w.custom(option_of(name).c_str(), "F", ("of " + readers[name]).c_str(),
             [&o, name](const std::string& value) {
               o.arrays[name] = value;
               return std::string();
             })
        .file();
}

std::string rules_text() {
  std::string text =
      "a rule and its keys, \"shard tokens=16 ranks=4 rank=1\"; keys without = are required:";
  for (const RuleInfo& rule : position_rules())
    text += fmt::format("\n{}{}{}\n    {}", rule.name, rule.keys.empty() ? "" : " ", rule.keys,
                        rule.text);
  return text;
}

Verb::Run declare_positions(Words& w) {
  auto o = std::make_shared<RuleOptions>();
  w.text("RULE", o->rule, "", rules_text().c_str()).required();
  add_arrays(w, *o);
  w.output(
       Holds::one_array,
       "F.npy, F.safetensors, F.csv or -: [tokens], [batch, tokens] or [axes, batch, tokens]; "
       "a .safetensors\nfile of mrope, omni and xd_rope also has delta, [batch]: cache length + "
       "delta is the next position")
      .required();
  return [o](const Request& r) { return positions(*o, r); };
}

}  // namespace

const Verb positions_verb{
    "positions", "compute positions by a rule: packed, padded, sharded, grids, M-RoPE",
    &declare_positions,
    "An array option accepts a file F.npy or F.safetensors[:NAME], or a list 0,1,2 or A:B.\n"
    "Examples:\n  posenc positions packed --cu-seqlens 0,3,8 -o positions.npy\n"
    "  posenc positions \"left_padded padded=1\" --mask mask.npy -o positions.npy\n"
    "  posenc positions \"fairseq padding_idx=1\" --tokens ids.npy -o positions.npy\n"
    "  posenc positions \"shard tokens=16 ranks=4 rank=1 layout=zigzag\" -o - --format csv\n"
    "  posenc positions \"grid shape=[24,24] merge=2\" -o cells.npy\n"
    "  posenc positions mrope --token-types types.npy --image-grid grid.npy -o "
    "positions.safetensors",
    true};

}  // namespace posenc::report
