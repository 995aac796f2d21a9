// SPDX-License-Identifier: Apache-2.0
// posenc list: the registry as text, JSON or a Markdown table.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string_view>
#include <utility>

#include "append.h"
#include "posenc/core/error.h"
#include "posenc/registry/fields.h"
#include "posenc/report/verb.h"

namespace posenc::report {
namespace {

std::string range(const FieldInfo& f) {
  const std::string low = f.min ? number_text(*f.min) : "", high = f.max ? number_text(*f.max) : "";
  if (!f.min && !f.max) return "";
  return !f.max ? ">= " + low : !f.min ? "<= " + high : low + " to " + high;
}

void add_presets(std::string& text, const SchemeInfo& s, const Style& style) {
  if (s.presets.empty()) return;
  const auto& usual = s.presets.front().sizes;
  append(text, "  presets, as in programs: \"{}\"; a field beside a preset replaces its value\n",
         s.presets.front().short_text);
  for (const PresetInfo& p : s.presets)
    append(text, "    {:<26} {}{}\n", p.name, p.text,
           p.sizes == usual  ? ""
           : p.sizes.empty() ? style.dim("  (no size)")
                             : style.dim(fmt::format("  (requires {})", fmt::join(p.sizes, ", "))));
}

// "table_k [129, head_dim], ...": arrays of to_json(SchemeInfo).
std::string arrays_text(const Json& arrays) {
  std::string text;
  for (const Json& a : arrays.as_array()) {
    std::string shape;
    for (const Json& n : a.at("shape").as_array())
      append(shape, "{}{}", shape.empty() ? "" : ", ", n.is_string() ? n.as_string() : n.dump());
    const Json* whole = a.find("integer");
    append(text, "{}{} [{}]{}", text.empty() ? "" : ", ", a.at("name").as_string(), shape,
           whole != nullptr && whole->as_bool() ? " of integers" : "");
  }
  return text;
}

void add_arrays(std::string& text, const SchemeInfo& s) {
  const Json all = to_json(s);
  const Json* at = all.find("at");
  if (at == nullptr || at->is_null()) return;
  for (const auto& [key, title] :
       {std::pair("parameters", "learned parameters"), std::pair("inputs", "inputs of each call")})
    if (const std::string arrays = arrays_text(all.at(key)); !arrays.empty())
      append(text, "  {} of \"{}\": {}\n", title, at->as_string(), arrays);
}

void add_one(std::string& text, const SchemeInfo& s, const Style& style) {
  append(
      text, "{}  {} ({})\n  {}{}\n", style.bold(s.card.name), s.card.title, s.family, s.card.paper,
      s.card.equations.empty() || s.card.equations == "-" ? ""
                                                          : fmt::format(", {}", s.card.equations));
  for (const FieldInfo& f : s.fields) {
    std::string tail = f.required                             ? "required"
                       : f.optional && f.default_text.empty() ? "default: none"
                                                              : "default " + f.default_text;
    if (!range(f).empty()) tail += ", " + range(f);
    if (!f.unit.empty()) tail += ", in " + std::string(f.unit);
    append(text, "    {:<22} {:<16} {}  {}\n", f.name,
           f.type.find('|') == std::string::npos ? f.type : "word", f.doc, style.dim(tail));
    if (!f.choices.empty())
      append(text, "    {:<22} {:<16} one of {}\n", "", "", fmt::join(f.choices, ", "));
  }
  add_arrays(text, s);
  add_presets(text, s, style);
}

void add_all(std::string& text, const char* title, const std::vector<SchemeInfo>& all,
             const Style& style) {
  append(text, "{}\n", style.bold(title));
  for (const SchemeInfo& s : all)
    append(text, "  {:<20} {:<46} {}\n", s.card.name, s.card.title, style.dim(s.card.paper));
}

// One row for each family, in the order of the registry.
void add_markdown(std::string& text, const std::vector<SchemeInfo>& all) {
  std::vector<std::pair<std::string_view, std::string>> families;
  for (const SchemeInfo& s : all) {
    const auto named = [&](const auto& f) { return f.first == s.family; };
    auto found = std::find_if(families.begin(), families.end(), named);
    if (found == families.end()) found = families.insert(found, {s.family, ""});
    append(found->second, "{}`{}`", found->second.empty() ? "" : ", ", s.card.name);
  }
  append(text, "| family | names |\n|---|---|\n");
  for (const auto& [family, names] : families) append(text, "| {} | {} |\n", family, names);
}

std::string text_of(const std::string& name, const std::vector<SchemeInfo>& both,
                    const Request& r) {
  for (const SchemeInfo& s : both) {
    if (s.card.name != name) continue;
    if (r.json) return to_json(s).dump(2) + "\n";
    std::string text;
    add_one(text, s, {r.color});
    return text;
  }
  std::vector<std::string_view> known;
  for (const SchemeInfo& s : both) known.push_back(s.card.name);
  const std::string_view meant = nearest_word(name, known);
  throw UsageError(fmt::format("nothing is called \"{}\"; {}there are: {}", name,
                               meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                               fmt::join(known, ", ")));
}

struct ListOptions {
  std::string name;
  bool markdown = false;
};

Report list(const ListOptions& o, const Request& r) {
  const std::vector<SchemeInfo> schemes = all_schemes(), scalings = all_scalings();
  std::vector<SchemeInfo> both = schemes;
  both.insert(both.end(), scalings.begin(), scalings.end());
  if (r.json && o.markdown) throw UsageError("--json and --markdown are two forms: choose one");
  if (o.markdown && !o.name.empty())
    throw UsageError("--markdown prints the names of everything, so it does not accept NAME");
  if (!o.name.empty()) return {.text = text_of(o.name, both, r)};
  if (r.json) return {.text = registry_json().dump(2) + "\n"};
  std::string text;
  if (o.markdown) {
    add_markdown(text, both);
    return {.text = text};
  }
  const Style style{r.color};
  add_all(text, "schemes", schemes, style);
  add_all(text, "scalings, after \" + \"", scalings, style);
  text +=
      "\nposenc list NAME shows fields and arrays. As one argument:\n"
      "  \"rope head_dim=128 pairing=half_split + yarn factor=4 original_context=4096\"\n";
  return {.text = text};
}

Verb::Run declare_list(Words& w) {
  auto o = std::make_shared<ListOptions>();
  w.text("NAME", o->name, "", "one scheme or scaling (default: all)");
  w.flag("--markdown", o->markdown, "print the names by family as a Markdown table");
  w.json();
  return [o](const Request& r) { return list(*o, r); };
}

}  // namespace

const Verb list_verb{"list", "list schemes and scalings: fields, units, defaults, sources",
                     &declare_list, "Examples:\n  posenc list\n  posenc list yarn"};

}  // namespace posenc::report
