// SPDX-License-Identifier: Apache-2.0
// The report of posenc selftest.
#include "conformance/runner/selftest_report.h"

#include <fmt/format.h>

#include <iterator>
#include <regex>

#include "conformance/runner/runner.h"
#include "posenc/registry.h"
#include "posenc/rotary/plan.h"

namespace posenc::conformance {
namespace {

using report::InputError;
using report::Report;
using report::Style;
using report::UsageError;

template <class... T>
void append(std::string& to, fmt::format_string<T...> format, T&&... values) {
  fmt::format_to(std::back_inserter(to), format, std::forward<T>(values)...);
}

// The first of the folders that has suites.
std::vector<std::filesystem::path> default_suites(std::span<const std::filesystem::path> roots) {
  for (const std::filesystem::path& root : roots) {
    std::vector<std::filesystem::path> found = suites_under(root);
    if (!found.empty()) return found;
  }
  throw InputError("no conformance suites found beside posenc; name one with --suite DIR");
}

void add_failure(std::string& to, const Json& c, const Style& style) {
  append(to, "    {} {}\n", style.red("fail"), c.at("name").as_string());
  if (const Json* reason = c.find("reason");
      reason && reason->is_string() && !reason->as_string().empty())
    append(to, "      {}\n", reason->as_string());
  const Json* checks = c.find("checks");
  if (!checks || !checks->is_array()) return;
  for (const Json& check : checks->as_array()) {
    const Json* worst = check.find("worst");
    if (check.at("outcome").as_string() != "fail" || !worst || !worst->is_object()) continue;
    const auto text = [&](const char* key) { return worst->at(key).dump(); };
    append(to, "      {}: {}{} is {}, must be {} within {}\n", check.at("op").as_string(),
           worst->at("array").as_string(), text("index"), text("got"), text("want"),
           text("allowed"));
  }
}

void add_report(std::string& to, const Json& report, const Style& style) {
  std::int64_t passed = 0, failed = 0;
  for (const Json& suite : report.at("suites").as_array()) {
    const std::int64_t p = suite.at("passed").as_integer(), f = suite.at("failed").as_integer(),
                       n = suite.at("not_expressible").as_integer();
    passed += p, failed += f;
    if (p + f + n == 0) continue;  // the filter left nothing of it
    if (p + f == 0) {
      append(to, "  {:<24} {} cases, no operations given yet\n", suite.at("suite").as_string(), n);
      continue;
    }
    append(to, "  {:<24} {} passed, {} failed{}\n", suite.at("suite").as_string(), p, f,
           n ? fmt::format(", {} not expressible", n) : "");
    for (const Json& c : suite.at("cases").as_array())
      if (c.at("outcome").as_string() == "fail") add_failure(to, c, style);
  }
  append(to, "{}\n",
         failed == 0 && passed > 0
             ? style.green(fmt::format("{} cases passed", passed))
             : style.red(fmt::format("{} cases failed, {} passed", failed, passed)));
}

}  // namespace

Report selftest(const report::SelftestOptions& o, const report::Request& r,
                std::span<const std::filesystem::path> roots) {
  try {
    std::regex(o.filter);
  } catch (const std::regex_error& e) {
    throw UsageError("--filter is no regular expression: " + std::string(e.what()));
  }
  // A wrong environment fails here by one message, not in every case.
  default_executor();
  RotaryPlan(resolve(Rope{.head_dim = 2, .pairing = Pairing::half_split}), DType::f32);
  Options options;
  options.map = o.map;
  options.filter = o.filter;
  options.progress = [&](std::string_view suite, std::string_view name, std::int64_t done,
                         std::int64_t total) {
    if (r.progress) r.progress("selftest", done, total, fmt::format("{}/{}", suite, name));
  };
  std::vector<std::filesystem::path> suites(o.suites.begin(), o.suites.end());
  if (suites.empty() && o.onnx.empty()) suites = default_suites(roots);
  Json found = suites.empty()
                   ? Json::object({{"schema", "posenc.selftest/1"}, {"suites", Json::array()}})
                   : run_suites(suites, options);
  for (const std::string& dir : o.onnx) {
    const Json more = run_onnx(dir, options);
    Json all = found.at("suites");
    for (const Json& s : more.at("suites").as_array()) all.push(s);
    found.set("suites", std::move(all));
  }
  std::size_t cases = 0;
  for (const Json& s : found.at("suites").as_array()) cases += s.at("cases").as_array().size();
  if (cases == 0 && !o.filter.empty()) throw UsageError("no case matches --filter " + o.filter);
  Report answer{.code = all_passed(found) ? report::kSuccess : report::kNegative};
  if (r.json)
    answer.text = found.dump(2) + "\n";
  else
    add_report(answer.text, found, {r.color});
  return answer;
}

}  // namespace posenc::conformance
