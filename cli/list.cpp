// SPDX-License-Identifier: Apache-2.0
// posenc list: what the registry holds, for a person, a machine or the README.
#include <fmt/format.h>

#include "posenc/core/error.h"
#include "posenc/core/fields.h"
#include "streams.h"
#include "verbs.h"

namespace posenc::cli {
namespace {

std::string range(const FieldInfo& f) {
  const std::string low = f.min ? number_text(*f.min) : "", high = f.max ? number_text(*f.max) : "";
  if (!f.min && !f.max) return "";
  return !f.max ? ">= " + low : !f.min ? "<= " + high : low + " to " + high;
}

void print_presets(const SchemeInfo& s, const Style& style) {
  if (s.presets.empty()) return;
  const auto& usual = s.presets.front().sizes;
  show("  as programs have it, by name: \"{}\"; a field beside it counts instead\n",
       s.presets.front().short_text);
  for (const PresetInfo& p : s.presets)
    show("    {:<26} {}{}\n", p.name, p.text,
         p.sizes == usual  ? ""
         : p.sizes.empty() ? style.dim("  (takes no size)")
                           : style.dim(fmt::format("  (takes {})", fmt::join(p.sizes, ", "))));
}

void print_one(const SchemeInfo& s, const Style& style) {
  show("{}  {} ({})\n  {}{}\n", style.bold(s.card.name), s.card.title, s.family, s.card.paper,
       s.card.equations.empty() || s.card.equations == "-" ? ""
                                                           : fmt::format(", {}", s.card.equations));
  for (const FieldInfo& f : s.fields) {
    std::string tail = f.required                             ? "required"
                       : f.optional && f.default_text.empty() ? "default: none"
                                                              : "default " + f.default_text;
    if (!range(f).empty()) tail += ", " + range(f);
    if (!f.unit.empty()) tail += ", in " + std::string(f.unit);
    show("    {:<22} {:<16} {}  {}\n", f.name,
         f.type.find('|') == std::string::npos ? f.type : "word", f.doc, style.dim(tail));
    if (!f.choices.empty())
      show("    {:<22} {:<16} one of {}\n", "", "", fmt::join(f.choices, ", "));
  }
  print_presets(s, style);
}

void print_all(const char* title, const std::vector<SchemeInfo>& all, const Style& style) {
  show("{}\n", style.bold(title));
  for (const SchemeInfo& s : all)
    show("  {:<20} {:<46} {}\n", s.card.name, s.card.title, style.dim(s.card.paper));
}

// The state of a family is a property of the library, not of a page.
const char* state(std::string_view family) {
  if (family == "rotary" || family == "polar") return "definition, plan, kernels, gradients";
  if (family == "input module") return "definition, functions with gradients";
  if (family == "scaling") return "definition; acts on every rotary scheme";
  if (family == "relative") return "definition, exact attention, every gradient";
  return "definition, lowering, gradient of parameters";
}

void print_markdown(const std::vector<SchemeInfo>& all) {
  show("| name | what | family | state | source |\n|---|---|---|---|---|\n");
  for (const SchemeInfo& s : all)
    show("| `{}` | {} | {} | {} | {} |\n", s.card.name, s.card.title, s.family, state(s.family),
         s.card.paper);
}

}  // namespace

int list(const ListOptions& o) {
  const std::vector<SchemeInfo> schemes = all_schemes(), scalings = all_scalings();
  std::vector<SchemeInfo> both = schemes;
  both.insert(both.end(), scalings.begin(), scalings.end());
  const Style style = style_for_stdout();
  if (o.json && o.markdown) throw UsageError("--json and --markdown are two forms: choose one");
  if (o.markdown && !o.name.empty())
    throw UsageError("--markdown is the table of everything: it takes no NAME");
  if (!o.name.empty()) {
    for (const SchemeInfo& s : both) {
      if (s.card.name == o.name) {
        if (o.json)
          write_text("-", to_json(s).dump(2) + "\n");
        else
          print_one(s, style);
        return kSuccess;
      }
    }
    std::vector<std::string_view> known;
    for (const SchemeInfo& s : both) known.push_back(s.card.name);
    const std::string_view meant = nearest_word(o.name, known);
    throw UsageError(fmt::format("nothing is called \"{}\"; {}there are: {}", o.name,
                                 meant.empty() ? "" : fmt::format("did you mean {}? ", meant),
                                 fmt::join(known, ", ")));
  }
  if (o.markdown) {
    print_markdown(both);
    return kSuccess;
  }
  if (o.json) {
    write_text("-", registry_json().dump(2) + "\n");
    return kSuccess;
  }
  print_all("schemes", schemes, style);
  print_all("scalings, after \" + \"", scalings, style);
  show(
      "\nposenc list NAME shows the fields. As one argument:\n"
      "  \"rope head_dim=128 pairing=half_split + yarn factor=4 original_context=4096\"\n");
  return kSuccess;
}

}  // namespace posenc::cli
