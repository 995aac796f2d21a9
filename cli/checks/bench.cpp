// SPDX-License-Identifier: Apache-2.0
// posenc bench: every line beside the machine's own limit, measured in turns in the same run.
#include <fmt/format.h>

#include <regex>

#include "checks.h"
#include "lines/limits.h"
#include "lines/line.h"
#include "posenc/core/executor.h"
#include "posenc/core/isa.h"
#include "streams.h"

namespace posenc::cli {
namespace {

std::string time_text(double s) {
  return s < 1e-6   ? fmt::format("{:.0f} ns", s * 1e9)
         : s < 1e-3 ? fmt::format("{:.2f} us", s * 1e6)
                    : fmt::format("{:.2f} ms", s * 1e3);
}

Json machine(const std::vector<bench::Limit>& limits) {
  Json values = Json::object();
  for (const bench::Limit& l : limits) values.set(l.name, Json(l.value));
  Json isas = Json::array();
  for (const Isa isa : supported_isas()) isas.push(isa_name(isa));
  Json native = Json::array();
  for (const std::string_view f : native_features()) native.push(f);
  return Json::object({{"cpu", bench::cpu_name()},
                       {"isa", isa_name(active_isa())},
                       {"isas", isas},
                       {"native", native},
                       {"threads", default_executor().concurrency},
                       {"limits", values}});
}

// Of one sample in ten: null for lines that time themselves.
Json quiet(const bench::Measured& m) {
  if (m.quiet_seconds == 0) return {};
  const bool limited = m.quiet_limit_seconds > 0;
  return Json::object(
      {{"seconds", m.quiet_seconds},
       {"limit_seconds", limited ? Json(m.quiet_limit_seconds) : Json()},
       {"ratio", limited ? Json(m.quiet_seconds / m.quiet_limit_seconds) : Json()}});
}

Json result(const bench::Line& l, const bench::Measured& m) {
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
Json lacking(const bench::Line& l, const char* reason) {
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

void print_result(const bench::Line& l, const bench::Measured& m, const Style& style) {
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
  show("  {:<52} {:>10}  {:>7}  {:>8.1e}  {}\n", l.name, time_text(m.seconds),
       l.bytes > 0 ? fmt::format("{:.1f}", l.bytes / m.seconds / 1e9) : "-", m.max_error, ratio);
}

}  // namespace

Report bench(const BenchOptions& o, const Request& r) {
  std::regex filter;
  try {
    filter = std::regex(o.filter);
  } catch (const std::regex_error& e) {
    throw UsageError("--filter is no regular expression: " + std::string(e.what()));
  }
  std::vector<bench::Line> chosen;
  for (bench::Line& l : bench::lines())
    if (o.filter.empty() || std::regex_search(l.name, filter)) chosen.push_back(std::move(l));
  if (chosen.empty()) throw UsageError("no line matches --filter " + o.filter);
  const std::vector<bench::Limit> limits = bench::machine_limits();
  const Json about = machine(limits);
  const Style style = style_for_stdout();
  if (!r.json) {
    show("{}, kernels {}\n", about.at("cpu").as_string(), about.at("isa").as_string());
    for (const bench::Limit& l : limits)
      show("  limit {:<15} {:.1f} {}\n", l.name, l.value,
           l.name.rfind("fma", 0) == 0 ? "GFLOP/s" : "GB/s");
    show("  {:<52} {:>10}  {:>7}  {:>8}  {}\n", "line", "median", "GB/s", "error", "against");
  }
  Json results = Json::array();
  Progress progress("bench");
  bool wrong = false;
  for (std::size_t i = 0; i < chosen.size(); ++i) {
    progress.step(static_cast<Index>(i), static_cast<Index>(chosen.size()), chosen[i].name);
    try {
      const bench::Measured m = bench::measure(chosen[i], o.quick ? 0.1 : 1.0);
      results.push(result(chosen[i], m));
      if (!r.json) print_result(chosen[i], m, style);
    } catch (const std::invalid_argument& e) {  // this machine lacks what the line needs
      results.push(lacking(chosen[i], e.what()));
      if (!r.json) show("  {:<52} {}\n", chosen[i].name, e.what());
    } catch (const std::runtime_error& e) {
      wrong = true;
      say(fmt::format("{}\n", e.what()));
    }
  }
  Report report{.code = wrong ? kNegative : kSuccess};
  if (r.json)
    report.text =
        Json::object({{"schema", "posenc.bench/1"}, {"machine", about}, {"results", results}})
            .dump(2) +
        "\n";
  return report;
}

}  // namespace posenc::cli
