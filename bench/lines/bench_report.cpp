// SPDX-License-Identifier: Apache-2.0
// posenc bench: every line beside the machine's own limit, measured in turns in the same run.
#include "lines/bench_report.h"

#include <fmt/format.h>

#include <regex>

#include "lines/limits.h"
#include "lines/line.h"
#include "posenc/core/executor.h"
#include "posenc/core/isa.h"
#include "posenc/io/json.h"

namespace posenc::bench {
namespace {

using report::Report;
using report::Style;
using report::UsageError;

std::string time_text(double s) {
  return s < 1e-6   ? fmt::format("{:.0f} ns", s * 1e9)
         : s < 1e-3 ? fmt::format("{:.2f} us", s * 1e6)
                    : fmt::format("{:.2f} ms", s * 1e3);
}

Json machine(const std::vector<Limit>& limits) {
  Json values = Json::object();
  for (const Limit& l : limits) values.set(l.name, Json(l.value));
  Json isas = Json::array();
  for (const Isa isa : supported_isas()) isas.push(isa_name(isa));
  Json native = Json::array();
  for (const std::string_view f : native_features()) native.push(f);
  return Json::object({{"cpu", cpu_name()},
                       {"isa", isa_name(active_isa())},
                       {"isas", isas},
                       {"native", native},
                       {"threads", default_executor().concurrency},
                       {"limits", values}});
}

// Of one sample in ten: null for lines that time themselves.
Json quiet(const Measured& m) {
  if (m.quiet_seconds == 0) return {};
  const bool limited = m.quiet_limit_seconds > 0;
  return Json::object(
      {{"seconds", m.quiet_seconds},
       {"limit_seconds", limited ? Json(m.quiet_limit_seconds) : Json()},
       {"ratio", limited ? Json(m.quiet_seconds / m.quiet_limit_seconds) : Json()}});
}

Json result(const Line& l, const Measured& m) {
  const bool limited = m.limit_seconds > 0;
  return Json::object(
      {{"name", l.name},
       {"seconds", m.seconds},
       {"bytes", l.bytes},
       {"flops", l.flops},
       {"limit",
        limited ? Json::object({{"name", l.limit_name}, {"seconds", m.limit_seconds}}) : Json()},
       {"ratio", limited ? Json(m.seconds / m.limit_seconds) : Json()},
       {"quiet", quiet(m)},
       {"goal", l.goal > 0 ? Json(l.goal) : Json()},
       {"max_error", m.max_error}});
}

// A line that this machine cannot show.
Json lacking(const Line& l, const char* reason) {
  return Json::object({{"name", l.name},
                       {"seconds", Json()},
                       {"bytes", l.bytes},
                       {"flops", l.flops},
                       {"limit", Json()},
                       {"ratio", Json()},
                       {"quiet", Json()},
                       {"goal", l.goal > 0 ? Json(l.goal) : Json()},
                       {"max_error", Json()},
                       {"reason", reason}});
}

std::string line_text(const Line& l, const Measured& m, const Style& style) {
  std::string ratio = "-";
  if (m.limit_seconds > 0) {
    const double r = m.seconds / m.limit_seconds;
    const std::string text = fmt::format("{:.2f} x {}", r, l.limit_name);
    ratio = l.goal > 0 ? (r <= l.goal ? style.green(text) : style.yellow(text)) +
                             fmt::format(" (goal {:g})", l.goal)
                       : text;
    if (m.quiet_limit_seconds > 0)
      ratio += fmt::format(", quiet {:.2f}", m.quiet_seconds / m.quiet_limit_seconds);
  }
  return fmt::format("  {:<52} {:>10}  {:>7}  {:>8.1e}  {}\n", l.name, time_text(m.seconds),
                     l.bytes > 0 ? fmt::format("{:.1f}", l.bytes / m.seconds / 1e9) : "-",
                     m.max_error, ratio);
}

}  // namespace

Report bench_report(const report::BenchOptions& o, const report::Request& r) {
  const auto show = [&](const std::string& text) {
    if (!r.json && r.out) r.out(text);
  };
  std::regex filter;
  try {
    filter = std::regex(o.filter);
  } catch (const std::regex_error& e) {
    throw UsageError("--filter is no regular expression: " + std::string(e.what()));
  }
  std::vector<Line> chosen;
  for (Line& l : lines())
    if (o.filter.empty() || std::regex_search(l.name, filter)) chosen.push_back(std::move(l));
  if (chosen.empty()) throw UsageError("no line matches --filter " + o.filter);
  const std::vector<Limit> limits = machine_limits();
  const Json about = machine(limits);
  const Style style{r.color};
  show(fmt::format("{}, kernels {}\n", about.at("cpu").as_string(), about.at("isa").as_string()));
  for (const Limit& l : limits)
    show(fmt::format("  limit {:<15} {:.1f} {}\n", l.name, l.value,
                     l.name.rfind("fma", 0) == 0 ? "GFLOP/s" : "GB/s"));
  show(fmt::format("  {:<52} {:>10}  {:>7}  {:>8}  {}\n", "line", "median", "GB/s", "error",
                   "against"));
  Json results = Json::array();
  bool wrong = false;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    if (r.progress)
      r.progress("bench", static_cast<Index>(i), static_cast<Index>(chosen.size()), chosen[i].name);
    try {
      const Measured m = measure(chosen[i], o.quick ? 0.1 : 1.0);
      results.push(result(chosen[i], m));
      show(line_text(chosen[i], m, style));
    } catch (const std::invalid_argument& e) {  // this machine lacks what the line needs
      results.push(lacking(chosen[i], e.what()));
      show(fmt::format("  {:<52} {}\n", chosen[i].name, e.what()));
    } catch (const std::runtime_error& e) {
      wrong = true;
      if (r.note) r.note(fmt::format("{}\n", e.what()));
    }
  }
  Report made{.code = wrong ? report::kNegative : report::kSuccess};
  if (r.json)
    made.text =
        Json::object({{"schema", "posenc.bench/1"}, {"machine", about}, {"results", results}})
            .dump(2) +
        "\n";
  return made;
}

}  // namespace posenc::bench
