// SPDX-License-Identifier: Apache-2.0
#include "findings.h"

#include <fmt/format.h>

#include <algorithm>

namespace posenc::cli {

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

}  // namespace posenc::cli
