// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <regex>
#include <stdexcept>

#include "conformance/runner/check.h"
#include "conformance/runner/runner.h"
#include "posenc/core/error.h"
#include "posenc/core/printable.h"

namespace posenc::conformance {
namespace {

struct Outcome {
  std::string outcome = "pass", reason;  // pass | fail | not_expressible
};

// Messages may name a file, whose name is any bytes.
std::string in_utf8(std::string_view text) {
  return printable(text, std::string::npos);
}

Json number(double v) {
  if (std::isfinite(v)) return Json(v);
  return Json(number_text(v));
}

Json worst_json(const Comparison& c) {
  if (c.worst.ratio < 0) return Json(nullptr);
  Json index = Json::array();
  for (const Index i : c.worst.index) index.push(Json(i));
  return Json::object({{"array", Json(c.worst.array)},
                       {"index", index},
                       {"got", number(c.worst.got)},
                       {"want", number(c.worst.want)},
                       {"allowed", number(c.worst.allowed)}});
}

std::string position_text(const Worst& w) {
  std::string text = w.array;
  for (const Index i : w.index) text += "[" + std::to_string(i) + "]";
  return text;
}

Outcome finish(const Check& check) {
  const Comparison& c = check.comparison;
  if (c.compared == 0) return {"fail", "the check compares nothing"};
  if (!c.failed) return {};
  if (!check.failure.empty()) return {"fail", check.failure};
  return {"fail", position_text(c.worst) + ": got " + number_text(c.worst.got) + ", want " +
                      number_text(c.worst.want) + ", allowed " + number_text(c.worst.allowed)};
}

Outcome run_check(const Case& c, const Json& json, Json& report) {
  Check check(c, json);
  Outcome o;
  std::string op;
  try {
    if (json.find("op") == nullptr)
      refuse("case", "a check must be an object with op", json.dump());
    op = check.text("op");
    const Operation operation = find_operation(op);
    if (operation == nullptr) throw NotExpressible("operation " + op + " is not known");
    operation(check);
    o = finish(check);
    const std::string unread = check.unread();
    if (o.outcome == "pass" && !unread.empty())
      o = {"fail", "the operation " + op + " does not read the member \"" + unread + "\""};
  } catch (const NotExpressible& e) {
    o = {"not_expressible", in_utf8(e.what())};
  } catch (const std::exception& e) {
    o = {"fail", in_utf8(e.what())};
  }
  report = Json::object({{"op", Json(op)}, {"outcome", Json(o.outcome)}});
  if (!o.reason.empty()) report.set("reason", Json(o.reason));
  report.set("worst", worst_json(check.comparison));
  return o;
}

// A case that states how near a named precision comes must be run in it: the exact tolerance of
// such a case may be so wide that it proves nothing.
std::string missing_precision(const Case& c, const Json& checks) {
  const Json* compat = c.json.at_pointer("/tolerance/compat/mode");
  if (compat == nullptr) return {};
  bool named = false, exact = false;
  const auto look = [&](const Json& check, const auto& self) -> void {
    const Json* precision = check.find("precision");
    const bool is_exact = precision == nullptr || precision->as_string() == "exact";
    exact = exact || is_exact;
    named = named || (!is_exact && precision->as_string() == compat->as_string());
    if (const Json* steps = check.find("steps"))
      for (const Json& step : steps->as_array()) self(step, self);
  };
  for (const Json& check : checks.as_array()) look(check, look);
  if (!named) return "no check runs in the precision " + compat->as_string();
  return exact ? "" : "no check runs in exact arithmetic";
}

Json run_case(const Suite& suite, const Json& json, const Json* checks, Outcome& total) {
  const Case c{suite, json, json.at("name").as_string()};
  Json reports = Json::array();
  if (checks == nullptr) {
    const Json* why = json.find("posenc_not_expressible");
    const bool said = why != nullptr && why->is_string();
    total = {"not_expressible", said ? why->as_string() : "no operation given"};
  } else if (!checks->is_array() || checks->as_array().empty()) {
    total = {"fail", "posenc must be a list of checks"};
  } else {
    try {
      const std::string missing = missing_precision(c, *checks);
      if (!missing.empty()) total = {"fail", missing};
    } catch (const std::exception& e) {
      total = {"fail", in_utf8(e.what())};
    }
    for (const Json& check : checks->as_array()) {
      Json report;
      const Outcome o = run_check(c, check, report);
      reports.push(std::move(report));
      const bool worse = o.outcome == "fail"
                             ? total.outcome != "fail"
                             : o.outcome == "not_expressible" && total.outcome == "pass";
      if (worse) total = o;
    }
  }
  return Json::object({{"name", Json(c.name)},
                       {"outcome", Json(total.outcome)},
                       {"reason", Json(total.reason)},
                       {"checks", reports}});
}

struct Selection {
  Options options;
  Json map;
  std::regex filter;
};

bool selected(const Selection& s, const std::string& suite, const std::string& name) {
  return s.options.filter.empty() || std::regex_search(suite + "/" + name, s.filter);
}

Json run_selected(const Suite& suite, const Selection& selection) {
  std::vector<const Json*> chosen;
  for (const Json& json : suite.cases.as_array())
    if (selected(selection, suite.name, json.at("name").as_string())) chosen.push_back(&json);
  std::int64_t passed = 0, failed = 0, not_expressible = 0, done = 0;
  Json cases = Json::array();
  for (const Json* json : chosen) {
    const std::string& name = json->at("name").as_string();
    const Json* checks = selection.map.find(name);
    if (checks == nullptr) checks = json->find("posenc");
    Outcome outcome;
    cases.push(run_case(suite, *json, checks, outcome));
    passed += outcome.outcome == "pass" ? 1 : 0;
    failed += outcome.outcome == "fail" ? 1 : 0;
    not_expressible += outcome.outcome == "not_expressible" ? 1 : 0;
    if (selection.options.progress)
      selection.options.progress(suite.name, name, ++done,
                                 static_cast<std::int64_t>(chosen.size()));
  }
  return Json::object({{"suite", Json(suite.name)},
                       {"passed", Json(passed)},
                       {"failed", Json(failed)},
                       {"not_expressible", Json(not_expressible)},
                       {"cases", cases}});
}

}  // namespace

Json run_suite(const Suite& suite) {
  const Json report = run_selected(suite, {{}, Json::object(), {}});
  return Json::object({{"schema", Json("posenc.selftest/1")}, {"suites", Json::array({report})}});
}

Json run_suites(const std::vector<std::filesystem::path>& suites, const Options& options) {
  Selection selection{options, Json::object(), {}};
  if (!options.map.empty()) {
    selection.map = read_json(options.map);
    if (!selection.map.is_object())
      throw FormatError(options.map.string(), "#", "must be an object: case name to checks");
  }
  try {
    selection.filter = std::regex(options.filter);
  } catch (const std::regex_error&) {
    refuse("selftest", "the filter must be a regular expression", options.filter);
  }
  Json reports = Json::array();
  for (const auto& dir : suites) reports.push(run_selected(load_suite(dir), selection));
  return Json::object({{"schema", Json("posenc.selftest/1")}, {"suites", reports}});
}

bool all_passed(const Json& report) {
  std::size_t cases = 0;
  for (const Json& suite : report.at("suites").as_array()) {
    if (suite.at("failed").as_integer() > 0) return false;
    cases += suite.at("cases").as_array().size();
  }
  return cases > 0;
}

std::vector<std::filesystem::path> suites_under(const std::filesystem::path& root) {
  std::vector<std::filesystem::path> suites;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(root, problem))
    if (std::filesystem::exists(entry.path() / "cases.json", problem))
      suites.push_back(entry.path());
  std::sort(suites.begin(), suites.end());
  return suites;
}

}  // namespace posenc::conformance
