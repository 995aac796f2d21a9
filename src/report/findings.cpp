// SPDX-License-Identifier: Apache-2.0
#include "posenc/report/doctor.h"

#include <fmt/format.h>

#include <algorithm>

namespace posenc::report {
namespace {

// True of every model with such pairs at such a length, whatever its file says.
bool holds_for_every_model(const Finding& f) {
  constexpr std::string_view kCodes[] = {"float32_angle", "pair_never_turns", "pairing_risk"};
  return f.severity == Severity::note &&
         std::find(std::begin(kCodes), std::end(kCodes), f.code) != std::end(kCodes);
}

}  // namespace

std::string findings_text(const std::vector<Finding>& findings, const Style& style) {
  std::vector<const Finding*> sorted;
  for (const Finding& f : findings) sorted.push_back(&f);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Finding* a, const Finding* b) { return a->severity > b->severity; });
  std::size_t count[3] = {0, 0, 0};
  for (const Finding* f : sorted) ++count[static_cast<std::size_t>(f->severity)];
  const auto many = [](std::size_t n, const char* what) {
    return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
  };
  std::string text = fmt::format("{}, {}, {}\n", many(count[2], "error"), many(count[1], "warning"),
                                 many(count[0], "note"));
  for (const Finding* f : sorted) {
    const std::string label(enum_text(f->severity));
    const std::string shown = f->severity == Severity::error     ? style.red(label)
                              : f->severity == Severity::warning ? style.yellow(label)
                                                                 : style.cyan(label);
    text += fmt::format("  {} {}: {}\n", shown, style.bold(f->code), f->message);
    if (!f->where.empty()) text += fmt::format("      where: {}\n", f->where);
    if (!f->fix.empty()) text += fmt::format("      fix:   {}\n", f->fix);
  }
  return text;
}

std::string doctor_text(const std::string& file, const std::vector<Finding>& findings, bool notes,
                        const Style& style) {
  std::vector<Finding> own;
  for (const Finding& f : findings)
    if (notes || !holds_for_every_model(f)) own.push_back(f);
  const std::size_t folded = findings.size() - own.size();
  const bool sound = std::all_of(own.begin(), own.end(),
                                 [](const Finding& f) { return f.severity == Severity::note; });
  std::string last = sound ? file + ": nothing is wrong with its positions" : "";
  if (folded > 0)
    last += fmt::format("{}{} note{} for every model of this kind: posenc doctor --notes",
                        sound ? "; " : "", folded, folded == 1 ? " that holds" : "s that hold");
  const std::string text = own.empty() ? "" : findings_text(own, style);
  return last.empty() ? text : text + last + "\n";
}

}  // namespace posenc::report
