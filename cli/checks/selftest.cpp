// SPDX-License-Identifier: Apache-2.0
// posenc selftest: numbers made by other people's programs, on this machine.
#include <fmt/format.h>

#include <regex>

#include "checks.h"
#include "conformance/runner/runner.h"
#include "posenc/registry.h"
#include "posenc/rotary/plan.h"
#include "streams.h"

namespace posenc::cli {
namespace {

std::vector<std::filesystem::path> default_suites() {
  // Installed, wherever the tree was moved to; else where the program was built.
  std::error_code problem;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", problem);
  const std::filesystem::path beside =
      program.parent_path().parent_path() / "share" / "posenc" / "conformance";
  for (const std::filesystem::path& root : {beside, std::filesystem::path(POSENC_SUITES_SOURCE),
                                            std::filesystem::path(POSENC_SUITES_INSTALLED)}) {
    std::vector<std::filesystem::path> found = conformance::suites_under(root);
    if (!found.empty()) return found;
  }
  throw InputError("no conformance suites found beside posenc; name one with --suite DIR");
}

void print_failure(const Json& c, const Style& style) {
  show("    {} {}\n", style.red("fail"), c.at("name").as_string());
  if (const Json* reason = c.find("reason");
      reason && reason->is_string() && !reason->as_string().empty())
    show("      {}\n", reason->as_string());
  const Json* checks = c.find("checks");
  if (!checks || !checks->is_array()) return;
  for (const Json& check : checks->as_array()) {
    const Json* worst = check.find("worst");
    if (check.at("outcome").as_string() != "fail" || !worst || !worst->is_object()) continue;
    const auto text = [&](const char* key) { return worst->at(key).dump(); };
    show("      {}: {}{} is {}, must be {} within {}\n", check.at("op").as_string(),
         worst->at("array").as_string(), text("index"), text("got"), text("want"), text("allowed"));
  }
}

void print_report(const Json& report, const Style& style) {
  std::int64_t passed = 0, failed = 0;
  for (const Json& suite : report.at("suites").as_array()) {
    const std::int64_t p = suite.at("passed").as_integer(), f = suite.at("failed").as_integer(),
                       n = suite.at("not_expressible").as_integer();
    passed += p, failed += f;
    if (p + f + n == 0) continue;  // the filter left nothing of it
    if (p + f == 0) {
      show("  {:<24} {} cases, no operations given yet\n", suite.at("suite").as_string(), n);
      continue;
    }
    show("  {:<24} {} passed, {} failed{}\n", suite.at("suite").as_string(), p, f,
         n ? fmt::format(", {} not expressible", n) : "");
    for (const Json& c : suite.at("cases").as_array())
      if (c.at("outcome").as_string() == "fail") print_failure(c, style);
  }
  show("{}\n", failed == 0 && passed > 0
                   ? style.green(fmt::format("{} cases passed", passed))
                   : style.red(fmt::format("{} cases failed, {} passed", failed, passed)));
}

}  // namespace

Report selftest(const SelftestOptions& o, const Request& r) {
  try {
    std::regex(o.filter);
  } catch (const std::regex_error& e) {
    throw UsageError("--filter is no regular expression: " + std::string(e.what()));
  }
  // A wrong environment fails here by one message, not in every case.
  default_executor();
  RotaryPlan(resolve(Rope{.head_dim = 2, .pairing = Pairing::half_split}), DType::f32);
  conformance::Options options;
  options.map = o.map;
  options.filter = o.filter;
  Progress progress("selftest");
  options.progress = [&](std::string_view suite, std::string_view name, std::int64_t done,
                         std::int64_t total) {
    progress.step(done, total, fmt::format("{}/{}", suite, name));
  };
  std::vector<std::filesystem::path> suites(o.suites.begin(), o.suites.end());
  if (suites.empty() && o.onnx.empty()) suites = default_suites();
  Json report = suites.empty()
                    ? Json::object({{"schema", "posenc.selftest/1"}, {"suites", Json::array()}})
                    : conformance::run_suites(suites, options);
  for (const std::string& dir : o.onnx) {
    const Json more = conformance::run_onnx(dir, options);
    Json all = report.at("suites");
    for (const Json& s : more.at("suites").as_array()) all.push(s);
    report.set("suites", std::move(all));
  }
  std::size_t cases = 0;
  for (const Json& s : report.at("suites").as_array()) cases += s.at("cases").as_array().size();
  if (cases == 0 && !o.filter.empty()) throw UsageError("no case matches --filter " + o.filter);
  Report answer{.code = conformance::all_passed(report) ? kSuccess : kNegative};
  if (r.json)
    answer.text = report.dump(2) + "\n";
  else
    print_report(report, style_for_stdout());
  return answer;
}

}  // namespace posenc::cli
